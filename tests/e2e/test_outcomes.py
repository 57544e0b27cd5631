"""Tools that misbehave: each call ends in its own outcome with one result, and the turn continues."""

from __future__ import annotations

import json

import pytest

from harness_worker.testing.waiting import wait_until
from tests.apps.e2e.hooks import hooks_file
from tests.e2e.outsider import Json, Outsider, Posted, Step, call
from tests.e2e.times import contents
from tests.processes import runs

LOOK = call("look", n=1)
PUT = call("put", n=1)
CASES: dict[str, list[Step]] = {
    "nap": [[call("nap", s=5), LOOK]],
    "nap_write": [[call("nap_write", s=5), PUT, LOOK], [LOOK, PUT]],
    "swallow": [[call("swallow"), LOOK]],
    "swallow_all": [[call("swallow_all"), LOOK]],
    "swallow_write": [[call("swallow_write"), PUT]],
    "weird": [[call("weird", kind=kind) for kind in ("object", "nan", "infinity", "bytes", "cycle", "generator")]],
    "weirder": [[call("weird", kind=kind) for kind in ("lock", "class", "function", "rows")]],
    "odd_text": [[call("odd_text")]],
    "errors": [[call("fail", how=how) for how in ("value", "path", "exit", "exit_zero", "interrupt", "recursion")]],
    "more_errors": [[call("fail", how=how) for how in ("memory", "long", "mute", "group", "generator_exit")]],
    "said": [[call("fail", how=how) for how in ("tool_error", "dict", "null_error", "string")]],
    "write_errors": [[call("fail_write", how=how) for how in ("value", "exit", "dict")], [PUT]],
    "final": [[call("fail", how="final"), LOOK]],
    "blobs": [[call("blob", chars=chars) for chars in (12_000, 12_001, 1_000_000)]],
    "die": [[call("die"), LOOK]],
    "die_once": [[call("die_once"), LOOK]],
    "die_write": [[PUT, call("die_write"), PUT, LOOK], [PUT]],
    "die_safe": [[call("die_safe"), PUT, LOOK], [PUT]],
    "die_safe_once": [[call("die_safe_once"), PUT]],
    "leave": [[call("leave")]],
    "leave_write": [[call("leave_write"), LOOK]],
    "spawn": [[call("spawn", then_die=False)]],
    "spawn_die": [[call("spawn", then_die=True)]],
    "fork": [[call("fork", then_die=False)]],
    "fork_die": [[call("fork", then_die=True)]],
    "split": [[*(call("split", how=how) for how in ("exit", "raise", "return")), PUT, LOOK], [PUT]],
    "crunch": [[call("crunch", method=method) for method in ("fork", "spawn", "forkserver")]],
    "speak": [[call("speak", word="lark")]],
    "unknown": [[call("nonsense", n=1), call("unlisted"), LOOK]],
    "invalid": [
        [
            call("look"),
            call("look", n="many"),
            call("look", n=1, m=2),
            call("look", n=1, ctx={}),
            call("put", n=None, s="x"),
            call("look", n=2),
        ]
    ],
    "stumble": [[call("stumble_twice"), call("stumble_write", times=9)], [call("stumble_safe", times=99), PUT]],
    "context": [[call("context"), call("context")]],
    "twice": [[call("fetch", n=1), call("fetch", n=1), call("fetch", n=2)], [call("fetch", n=1), LOOK]],
    "twice_after_a_write": [[call("fetch", n=1), PUT], [call("fetch", n=1)]],
    "written_twice": [[call("save", n=1), call("save", n=1), PUT, call("save", n=1)], [call("put", n=1)]],
    "blocked": [[call("fail", how="final"), LOOK], [call("fail", how="string"), LOOK]],
    "doubt_repeated": [[call("die_safe"), PUT], [call("die_safe")]],
}
HOOKED: list[Step] = [[LOOK, call("put", n=13), call("put", n=3)], [call("look", n="x")]]


@pytest.fixture(scope="module")
def turns(outsider: Outsider) -> Posted:
    """Every case, all posted at once; each ends with the model's last text if the turn continues after the fault."""
    return Posted(outsider, {name: outsider.body(*steps, "done") for name, steps in CASES.items()})


@pytest.fixture(scope="module")
def hooked(outsider: Outsider) -> Posted:
    """A turn of an agent with hooks, some of which raise errors."""
    return Posted(outsider, {"hooked": outsider.body(*HOOKED, "done", agent="hooked")})


def only(turn: Json, call_id: str) -> Json:
    """One call of a turn."""
    (found,) = (each for each in turn["calls"] if each["call_id"] == call_id)
    return found


def outcomes(turn: Json) -> list[str]:
    """The outcome of each call of the first step, without the prefix ``Tool``."""
    return [each["outcome"].removeprefix("Tool") for each in turn["calls"] if each["step"] == 0]


@pytest.mark.parametrize("name", CASES)
def test_turn_goes_on_after_a_fault(turns: Posted, name: str) -> None:
    """Whatever a tool does, the turn completes with the model's last text and keeps the rules for every turn."""
    turn = turns[name]
    assert (turn["status"], turn["stop_reason"], turn["output_text"]) == ("completed", "end_turn", "done")


@pytest.mark.parametrize("name", ["nap", "swallow", "swallow_all"])
def test_read_past_its_deadline_is_a_timeout(turns: Posted, name: str) -> None:
    """A read that sleeps or swallows its soft limits is a timeout; the other call of its wave is not."""
    assert outcomes(turns[name]) == ["Timeout", "ExecutionResult"]
    assert only(turns[name], "0.0")["attempt"] == 1


@pytest.mark.parametrize("name", ["nap_write", "swallow_write"])
def test_write_past_its_deadline_is_in_doubt(turns: Posted, name: str) -> None:
    """A started write past its deadline is in doubt, never a timeout, and the rest of its message never runs."""
    doubt, *rest = contents(turns[name])
    assert doubt.startswith("outcome_unknown: ")
    assert all(content.startswith("denied: not_run: ") for content in rest)
    assert outcomes(turns[name])[0] == "Failure"


def test_message_after_a_doubt_runs(turns: Posted) -> None:
    """A doubt stops only the later calls of its own message."""
    assert contents(turns["nap_write"], 1) == ['{"n":1}', "put 1"]


def test_unserialisable_values_are_named(turns: Posted) -> None:
    """A result that JSON cannot hold is a failure that names its type and its place."""
    said = contents(turns["weird"]) + contents(turns["weirder"])
    kinds = ["object at $.a[1]", "float at $", "float at $[0]", "bytes at $", "list at $[0]", "generator at $"]
    kinds += ["lock at $", "type at $", "function at $", "Rows at $.rows"]
    assert said == [f"unserialisable result: {kind}" for kind in kinds]
    assert set(outcomes(turns["weird"]) + outcomes(turns["weirder"])) == {"Failure"}


def test_text_that_cannot_be_kept_is_replaced(turns: Posted) -> None:
    """NUL and lone surrogates in a tool's output become U+FFFD."""
    assert contents(turns["odd_text"]) == ['{"a\ufffdb":"c\ufffdd"}']


def test_exceptions_are_named_with_their_message(turns: Posted) -> None:
    """Any exception is a failure with the text ``TypeName: message``, without paths."""
    value, path, leave, leave_zero, interrupt, recursion = contents(turns["errors"])
    assert value == "ValueError: no such order"
    assert path.startswith("FileNotFoundError: ")
    assert "/" not in path
    assert (leave, leave_zero) == ("SystemExit: 3", "SystemExit: 0")
    assert interrupt.startswith("KeyboardInterrupt: ")
    assert recursion.startswith("RecursionError: maximum recursion depth exceeded")
    assert set(outcomes(turns["errors"])) == {"Failure"}


def test_odd_exceptions_are_told_too(turns: Posted) -> None:
    """Exceptions with long, empty or unusual messages, and groups of them, are one short line each."""
    memory, long, mute, group, generator = contents(turns["more_errors"])
    assert memory.startswith("MemoryError: ")
    assert len(long) == 2_000
    assert mute.startswith("Mute: ")
    assert group.startswith("ExceptionGroup: two")
    assert generator.startswith("GeneratorExit: ")


def test_tool_says_itself_what_failed(turns: Posted) -> None:
    """A ``ToolError`` is its message; a dict with a non-null ``error`` is a failure; a returned string never is."""
    assert contents(turns["said"]) == [
        "the shop is closed",
        '{"error":"out of stock","left":0}',
        '{"error":null,"left":0}',
        "error: but only a string",
    ]
    assert outcomes(turns["said"]) == ["Failure", "Failure", "ExecutionResult", "ExecutionResult"]


def test_failed_write_does_not_stop_later_ones(turns: Posted) -> None:
    """A write that raised has failed without doubt, so the calls after it run."""
    assert outcomes(turns["write_errors"]) == ["Failure"] * 3
    assert contents(turns["write_errors"], 1) == ["put 1"]


def test_final_tool_error_is_its_message(turns: Posted) -> None:
    """An error that forbids another try has the same form as any other."""
    assert contents(turns["final"]) == ["never again", '{"n":1}']


def test_long_output_is_stored_aside(turns: Posted, outsider: Outsider) -> None:
    """12,000 characters stay inline; one more becomes an artifact, shown by its id and 200 characters of it."""
    inline, over, huge = turns["blobs"]["calls"]
    assert (inline["outcome"], inline["content"]) == ("ToolExecutionResult", "x" * 12_000)
    for each, size in ((over, 12_001), (huge, 1_000_000)):
        assert each["outcome"] == "ToolArtifactReference"
        name, summary = each["content"].split(": ")
        assert name.startswith("art_")
        assert summary == "x" * 200
        (kept,) = (outsider.stack.home / "artifacts" / turns["blobs"]["id"]).glob(f"{name}*")
        assert kept.read_bytes() == b"x" * size


@pytest.mark.parametrize("name", ["die", "leave"])
def test_read_that_ends_its_process_each_time_is_lost(turns: Posted, outsider: Outsider, name: str) -> None:
    """The read runs three times and is then given up."""
    lost = only(turns[name], "0.0")
    assert lost["outcome"] == "ToolFailure"
    assert lost["content"].startswith("worker_lost: ")
    assert lost["attempt"] == 3
    assert [line["attempt"] for line in outsider.entries(turns[name]["id"], "0.0")] == [1, 2, 3]


def test_calls_beside_a_lost_read_are_unharmed(turns: Posted) -> None:
    """Another call of the same wave has its own result."""
    assert contents(turns["die"])[1] == '{"n":1}'


def test_read_that_ends_its_process_once_is_run_again(turns: Posted) -> None:
    """The result of a later attempt stands; on a slow machine a live attempt may count as lost, too."""
    again = only(turns["die_once"], "0.0")
    assert again["attempt"] in (2, 3)
    assert again["content"] == f"attempt {again['attempt']}"


@pytest.mark.parametrize("name", ["die_write", "leave_write"])
def test_write_that_ends_its_process_is_in_doubt(turns: Posted, outsider: Outsider, name: str) -> None:
    """The write never runs again; calls before it keep their results, calls after it in its message never run."""
    calls = [each for each in turns[name]["calls"] if each["step"] == 0]
    place = 1 if name == "die_write" else 0
    assert calls[place]["content"].startswith("outcome_unknown: ")
    assert all(each["content"].startswith("denied: not_run: ") for each in calls[place + 1 :])
    assert len(outsider.entries(turns[name]["id"], calls[place]["call_id"])) == 1
    assert contents(turns["die_write"], 1) == ["put 1"]


def test_retry_safe_write_that_ends_its_process_each_time_is_lost(turns: Posted, outsider: Outsider) -> None:
    """The write runs three times under one key; then the rest of its message is not run, but the next message is."""
    lost, *rest = [each for each in turns["die_safe"]["calls"] if each["step"] == 0]
    assert lost["content"].startswith("worker_lost: ")
    assert (lost["outcome"], lost["attempt"]) == ("ToolFailure", 3)
    assert all(each["content"].startswith("denied: not_run: ") for each in rest)
    entries = outsider.entries(turns["die_safe"]["id"], "0.0")
    assert [line["attempt"] for line in entries] == [1, 2, 3]
    assert len({line["key"] for line in entries}) == 1
    assert contents(turns["die_safe"], 1) == ["put 1"]


def test_retry_safe_write_that_ends_its_process_once_is_run_again(turns: Posted) -> None:
    """The second attempt's result stands, and the calls after it run."""
    assert contents(turns["die_safe_once"]) == ["attempt 2", "put 1"]


def test_tool_may_start_processes_of_python(turns: Posted) -> None:
    """Pools and executors work in a tool, with each start method of ``multiprocessing``."""
    assert contents(turns["crunch"]) == ["[1,2,3]"] * 3


def test_tool_may_print_as_a_script_does(turns: Posted, outsider: Outsider) -> None:
    """Its streams are files like a script's, and each line is one in the worker's log."""
    assert contents(turns["speak"]) == ["spoken"]
    log = outsider.stack.home / "logs" / "up.log"
    words = {"said lark", "written lark", "echoed lark", "complained of lark"}
    wait_until(lambda: words <= {line.partition("| ")[2] for line in log.read_text().splitlines()}, "its lines")


def test_child_that_a_tool_forks_never_acts_as_the_tool(turns: Posted) -> None:
    """Whatever way the child leaves the body, it ends; the call's result is what the parent returns."""
    parents = ["parent of 0", "parent of 1", "parent of 0"]
    assert contents(turns["split"]) == [*parents, "put 1", '{"n":1}']
    assert outcomes(turns["split"]) == ["ExecutionResult"] * 5


@pytest.mark.parametrize("name", ["spawn", "spawn_die", "fork", "fork_die"])
def test_process_a_tool_started_goes_with_it(turns: Posted, outsider: Outsider, name: str) -> None:
    """If a tool is ended by its deadline or by its process's death, the processes that it started end too."""
    pids = [line["started"] for line in outsider.entries(turns[name]["id"])]
    assert len(pids) == only(turns[name], "0.0")["attempt"]
    wait_until(lambda: not any(map(runs, pids)), "what the tool started to be gone")


def test_unknown_tool_is_denied_with_what_there_is(turns: Posted) -> None:
    """A tool that does not exist, or that the agent lacks, is denied; the model is told which tools there are."""
    nonsense, unlisted, look = turns["unknown"]["calls"]
    assert nonsense["content"].startswith("denied: validation: unknown tool nonsense; available: look, ")
    assert unlisted["content"].startswith("denied: validation: unknown tool unlisted; available: ")
    assert nonsense["effect"] is None
    assert look["outcome"] == "ToolExecutionResult"


def test_invalid_arguments_are_denied_by_name(turns: Posted) -> None:
    """Missing, mistyped and extra arguments are each named, also a ``ctx`` that the model gave."""
    said = contents(turns["invalid"])
    for content, names in zip(said[:5], (["n"], ["n"], ["m"], ["ctx"], ["n", "s"]), strict=True):
        assert content.startswith("denied: validation: ")
        assert all(name in content.removeprefix("denied: validation: ") for name in names)
    assert said[5] == '{"n":2}'
    assert turns["invalid"]["usage"]["tool_calls"] == 1


def test_passing_faults_are_tried_again_unseen(turns: Posted) -> None:
    """A ``ToolTransientError`` is retried within one attempt if the tool is ``retry_safe``; else it is a failure."""
    passed, unsafe = (each for each in turns["stumble"]["calls"] if each["step"] == 0)
    assert (passed["outcome"], passed["content"], passed["attempt"]) == ("ToolExecutionResult", "try 3", 1)
    assert (unsafe["outcome"], unsafe["content"]) == ("ToolFailure", "come back later")


def test_passing_fault_that_does_not_pass_is_a_failure(turns: Posted) -> None:
    """If all tries fail, the call has failed without doubt, so the next call runs."""
    assert contents(turns["stumble"], 1) == ["come back later", "put 1"]


def test_tool_is_told_its_call(turns: Posted) -> None:
    """``ctx`` names the turn, call, session, tenant and key, and has the metadata and the time that is left."""
    turn = turns["context"]
    told = [json.loads(content) for content in contents(turn)]
    assert [each["call_id"] for each in told] == ["0.0", "0.1"]
    assert {(each["turn_id"], each["session_id"], each["tenant"]) for each in told} == {
        (turn["id"], turn["session_id"], "default")
    }
    assert [each["metadata"] for each in told] == [turn["metadata"]] * 2
    assert told[0]["key"] != told[1]["key"]
    assert all(0 < each["remaining_s"] <= 10 for each in told)


def test_idempotent_call_is_not_run_twice(turns: Posted, outsider: Outsider) -> None:
    """A repeat, in the same message or a later one, is denied as a duplicate that names the first call."""
    first, again, other = contents(turns["twice"])
    assert (first, other) == ('{"n":1}', '{"n":2}')
    later, look = contents(turns["twice"], 1)
    assert again.startswith("denied: duplicate: equal to call 0.0, ")
    assert later.startswith("denied: duplicate: equal to call 0.0, ")
    assert look == '{"n":1}'
    assert [line["call"] for line in outsider.entries(turns["twice"]["id"])].count("0.0") == 1
    assert turns["twice"]["usage"]["tool_calls"] == 3


def test_write_in_between_makes_a_repeat_a_new_call(turns: Posted) -> None:
    """After another write a repeat runs: what was read or written may have changed."""
    assert contents(turns["twice_after_a_write"], 1) == ['{"n":1}']
    first, second, put, third = contents(turns["written_twice"])
    assert (first, put, third) == ("saved 1", "put 1", "saved 1")
    assert second.startswith("denied: duplicate: equal to call 0.0, ")


def test_tool_that_is_not_idempotent_may_always_be_asked_again(turns: Posted) -> None:
    """A write of a tool that is not ``idempotent``, asked for twice, happens twice."""
    assert contents(turns["written_twice"], 1) == ["put 1"]


def test_tool_that_failed_for_good_is_blocked(turns: Posted) -> None:
    """After a ``ToolError`` with ``retryable=False`` the tool is denied for the rest of the turn; other tools run."""
    blocked, look = contents(turns["blocked"], 1)
    assert blocked.startswith("denied: blocked: fail failed for good in call 0.0")
    assert look == '{"n":1}'


def test_repeat_of_a_doubtful_call_keeps_its_key(turns: Posted, outsider: Outsider) -> None:
    """If the model repeats a call that ended in doubt, the tool gets the same idempotency key again."""
    lines = outsider.journal(turns["doubt_repeated"]["id"])
    assert {line["call"] for line in lines} == {"0.0", "1.0"}
    assert len({line["key"] for line in lines}) == 1
    assert len([line for line in lines if line["event"] == "effect"]) == 1


def test_hooks_deny_and_rewrite_calls(hooked: Posted) -> None:
    """Hooks deny calls with a reason, change arguments and change results; hooks that raise change nothing."""
    turn = hooked["hooked"]
    assert contents(turn) == ['{"n":1}', "denied: pre_hook: 13 brings bad luck", "put 4"]
    assert only(turn, "0.2")["arguments"] == {"n": 4, "s": 0.0}
    assert contents(turn, 1)[0].startswith("denied: validation: n: ")
    assert turn["usage"]["tool_calls"] == 2


def test_hooks_are_told_the_turn_in_order(hooked: Posted, outsider: Outsider) -> None:
    """Hooks are called at the start, before and after each call, for usage and at the end, in several processes."""
    file = hooks_file(outsider.directory, hooked["hooked"]["id"])
    told = wait_until(lambda: file.read_text().splitlines() if "end " in file.read_text() else None, "the end told")
    assert told == [
        "start",
        *("pre 0.0", 'post 0.0 {"n":1}', "pre 0.1", "pre 0.2", "post 0.2 put 4"),
        *("pre 1.0", "usage 2", "end completed"),
    ]
