"""One message to a tool process: whether the call may start, its outcome, and what is reported."""

from __future__ import annotations

import errno
import gc
import re
import resource
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from harness_worker.core.outcomes import content_of
from harness_worker.core.records import CallStatus
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.registry import Registry
from harness_worker.errors import (
    ArgumentsInvalid,
    ArgumentsOutdated,
    InvariantError,
    ToolError,
    ToolOutcomeUnknown,
    ToolTransientError,
    TransientError,
)
from harness_worker.ports import DeadlineReached
from harness_worker.turn.retries import HAND_IN_TRIES
from harness_worker.turn.running import tool_body
from harness_worker.turn.running.execution import STALE_START_S
from harness_worker.turn.running.job import Canvas
from harness_worker.turn.running.tool_body import ToolBody, Tries
from harness_worker.wire import TurnStatus
from tests.unit.builders import DEADLINE, NOW, TIMING
from tests.unit.engine_kit import THRESHOLD_CHARS, TIMEOUT_S, TURN_ID, Engine, Interrupted, KeptBlobs, answers, raising
from tests.unit.strikes import MOST_LINES, Striker

SILENT = TransientError("no answer")
PASSING = [SILENT, MemoryError(), OSError(errno.EIO, "Input/output error")]


@pytest.fixture
def engine() -> Engine:
    """A turn of an agent with a read and a write."""
    return Engine()


@pytest.fixture
def reading(engine: Engine) -> Engine:
    """The same engine, with a read sent."""
    engine.dispatched("look")
    return engine


@pytest.fixture
def writing(engine: Engine) -> Engine:
    """The same engine, with two writes sent as a chain."""
    engine.dispatched("write", "write")
    return engine


def outcome(engine: Engine) -> str:
    """The first call's outcome in the journal."""
    found = engine.calls[0].outcome
    assert found is not None
    return content_of(found)


@pytest.mark.parametrize("tool", ["look", "write"])
def test_call_delivered_twice_runs_once(engine: Engine, tool: str) -> None:
    """While the first delivery runs, the second does not continue the canvas; afterwards it does."""
    twins: list[Canvas] = []
    engine.dispatched(tool)
    engine.bodies[tool] = lambda: twins.append(engine.run(runner="host/2"))
    assert engine.run() is Canvas.CONTINUES
    assert twins == [Canvas.STAYS]
    assert engine.run(runner="host/3") is Canvas.CONTINUES
    assert engine.ran == [tool]


# --- reads


def test_read_runs_and_its_result_is_taken(reading: Engine) -> None:
    """The gate accepts the result; the next visit stores it, with the attempt's times and worker."""
    assert reading.run() is Canvas.CONTINUES
    reading.says(answers("ok"))
    reading.advance()
    assert outcome(reading) == "look done"
    assert reading.calls[0].worker == "host/1"


def test_read_of_a_closed_gate_does_not_run(reading: Engine) -> None:
    """The chord continues, so that a coordinator looks."""
    reading.gate.close(TURN_ID, reading.turn.fence)
    assert reading.run() is Canvas.CONTINUES
    assert reading.ran == []


def test_read_of_a_dead_process_does_not_run_again_by_redelivery(reading: Engine) -> None:
    """An attempt is admitted once, so a coordinator must send another attempt."""
    reading.gate.admit(reading.alive(), 10_000)
    reading.gate.lose(reading.alive())
    assert reading.run(runner="host/2") is Canvas.CONTINUES
    assert reading.ran == []
    reading.advance()
    assert reading.sent.calls["0.0"].attempt == 2


def test_read_that_was_stopped_before_it_started_does_not_run(reading: Engine) -> None:
    """If the process was stopped between admission and start, the admission is stale."""
    reading.seen_gate.after["admit"].append(lambda: reading.clock.wait(STALE_START_S + 0.1))
    assert reading.run() is Canvas.CONTINUES
    assert reading.ran == []
    reading.advance()
    assert reading.sent.calls["0.0"].attempt == 2, "said so: nobody waits for it"


@pytest.mark.parametrize("effect", [Effect.READ_ONLY, Effect.LOCAL_WRITE])
def test_message_of_another_tool_runs_nothing(effect: Effect) -> None:
    """After the journal was restored and the model asked anew, an old message must not run its tool for a new call."""
    engine = Engine(new=effect, old=effect)
    engine.dispatched("new")
    engine.runner.run(replace(engine.job(), tool="old"))
    assert engine.ran == []
    assert engine.calls[0].outcome is None


def test_read_past_its_time_hands_in_nothing(reading: Engine) -> None:
    """The gate reports the timeout."""
    reading.bodies["look"] = lambda: reading.clock.wait(TIMEOUT_S)
    reading.run()
    reading.says(answers("ok"))
    reading.clock.now_s = DEADLINE - 1
    reading.advance()
    assert outcome(reading).startswith("timeout: look did not finish within ")


def test_read_that_was_admitted_slowly_is_a_timeout_too(reading: Engine) -> None:
    """Its process, whose time counts from the request, says at the gate's deadline, which is later, that it lived."""
    slow_s, timeout_s = 0.5, reading.tools["look"].timeout_s
    reading.seen_gate.before["admit"].append(lambda: reading.clock.wait(slow_s))
    reading.bodies["look"] = lambda: reading.clock.wait(timeout_s - slow_s)
    reading.run()
    assert reading.clock.now_s == NOW + slow_s + timeout_s
    reading.says(answers("ok"))
    reading.clock.now_s += 1.0
    reading.advance()
    assert outcome(reading).startswith("timeout: look did not finish within ")


def test_late_read_is_an_event_while_the_turn_lives(reading: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """If the gate was flushed meanwhile, the result is dropped, with a log line, a count and an event."""
    reading.bodies["look"] = reading.flush
    assert reading.run() is Canvas.CONTINUES
    assert reading.event_types[-1] == "tool.late"
    assert "late result of look" in caplog.text
    assert reading.late == ["late"]


def test_late_read_after_the_end_changes_nothing(reading: Engine) -> None:
    """The terminal event stays the last; its process does not wait for the end of the read's time."""

    def end() -> None:
        reading.store.cancel(TURN_ID)
        reading.advance()

    reading.bodies["look"] = end
    reading.run()
    assert reading.turn.status is TurnStatus.CANCELLED
    assert reading.event_types[-1] == "turn.cancelled"
    assert reading.clock.now_s == NOW


def test_read_whose_gate_does_not_answer_is_not_started(reading: Engine) -> None:
    """The chord continues, and a look-in sends the read again."""
    reading.seen_gate.before["admit"].append(raising(SILENT))
    assert reading.run() is Canvas.CONTINUES
    assert reading.ran == []


@pytest.mark.parametrize("fault", [SILENT, OSError("too many open files")])
@pytest.mark.parametrize(
    ("tool", "seen", "asked"), [("look", "seen_gate", "admit"), ("write", "seen_store", "transact")]
)
def test_process_that_cannot_serve_a_message_is_told_of(tool: str, seen: str, asked: str, fault: Exception) -> None:
    """It may be damaged; a body that fails, or a message that comes twice, says nothing about it."""
    failures: list[str] = []
    engine = Engine()
    engine.run_calls_with(on_failure=lambda: failures.append(tool))
    engine.dispatched(tool)
    getattr(engine, seen).before[asked].append(raising(fault))
    with suppress(OSError):
        engine.run()
    assert failures == [tool]
    engine.bodies[tool] = raising(OSError("the tool's own"))
    for _ in range(2):
        engine.run()
    assert engine.ran
    assert failures == [tool]


@pytest.mark.parametrize("error", PASSING)
def test_read_hands_in_patiently(reading: Engine, error: Exception) -> None:
    """The result is offered until the gate answers; a lost answer does not make it a second result."""
    reading.seen_gate.before["complete"].append(raising(error))
    reading.seen_gate.after["complete"] += [raising(error)]
    assert reading.run() is Canvas.CONTINUES
    assert "tool.late" not in reading.event_types


def test_read_that_cannot_be_handed_in_is_not_late(reading: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """After some tries the result is given up, the call runs again, and the log names it."""
    reading.seen_gate.before["complete"] += [raising(SILENT)] * HAND_IN_TRIES
    assert reading.run() is Canvas.CONTINUES
    assert ("tool.late" in reading.event_types, reading.late) == (False, [])
    assert "result of look (call 0.0, turn turn) is lost" in caplog.text
    reading.clock.now_s += TIMING.lease_ttl_s
    reading.says(answers("ok"))
    reading.work()
    assert (reading.ran, outcome(reading)) == (["look", "look"], "look done")


# --- writes


def test_write_runs_and_is_in_the_journal(writing: Engine) -> None:
    """The outcome is committed before the chain continues."""
    assert writing.run() is Canvas.CONTINUES
    assert outcome(writing) == "write done"
    assert (writing.calls[0].status, writing.calls[0].worker) == (CallStatus.ENDED, "host/1")


def test_failed_write_lets_the_chain_go_on(writing: Engine) -> None:
    """A failure is an outcome like others."""
    writing.bodies["write"] = raising(ToolError("no such order"))
    assert writing.run() is Canvas.CONTINUES
    assert outcome(writing) == "no such order"
    assert writing.run("0.1") is Canvas.CONTINUES


def test_write_out_of_order_is_left_alone(writing: Engine) -> None:
    """A later call of the chain is ignored before the earlier one has ended."""
    assert writing.run("0.1") is Canvas.STAYS
    assert (writing.ran, writing.sent.advances) == ([], 0)


def test_write_of_a_turn_nobody_knows_is_left_alone(writing: Engine) -> None:
    """Without a row nothing runs."""
    job = replace(writing.job(), turn_id="nonsense")
    assert writing.runner.run(job) is Canvas.STAYS


def test_write_past_the_deadline_wakes_somebody(writing: Engine) -> None:
    """It does not run, and a coordinator is woken at once."""
    writing.clock.now_s = DEADLINE + 1
    assert writing.run() is Canvas.STAYS
    assert (writing.ran, writing.sent.advances) == ([], 1)


def test_write_that_the_gate_refuses_is_handed_back(writing: Engine) -> None:
    """A closed gate means that the turn is about to end: the call waits as if it had not been touched."""
    writing.gate.close(TURN_ID, writing.turn.fence)
    assert writing.run() is Canvas.STAYS
    assert (writing.ran, writing.calls[0].status) == ([], CallStatus.PENDING)
    assert writing.calls[0].deadline_at == DEADLINE


def test_write_does_without_a_gate(writing: Engine) -> None:
    """SQL is the arbiter of writes: a flushed or silent gate forbids nothing, at the start or at the end."""
    writing.seen_gate.before["admits_write"].append(raising(SILENT))
    assert writing.run() is Canvas.CONTINUES
    writing.flush()
    assert writing.run("0.1") is Canvas.CONTINUES
    assert writing.contents == ["write done", "write done"]


def test_write_that_was_stopped_before_it_started_does_not_run(writing: Engine) -> None:
    """If the process was stopped between claim and start, the call may already count as lost."""
    writing.seen_gate.after["admits_write"].append(lambda: writing.clock.wait(STALE_START_S + 0.1))
    assert writing.run() is Canvas.STAYS
    assert writing.ran == []


def test_write_that_cannot_be_handed_in_is_not_late(writing: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """A silent journal does not mean that the result was late; the log names the call."""
    silent = [raising(SILENT)] * HAND_IN_TRIES
    writing.bodies["write"] = lambda: writing.seen_store.before["transact"].extend(silent)
    assert writing.run() is Canvas.STAYS
    assert (writing.late, "late result" in caplog.text) == ([], False)
    assert "result of write (call 0.0, turn turn) is lost" in caplog.text


@pytest.fixture
def lost() -> Engine:
    """A write that may be repeated, whose process has died after its body."""
    engine = Engine(safe_write=Effect.LOCAL_WRITE)
    die_after_the_body(engine)
    return engine


def die_after_the_body(engine: Engine) -> None:
    """Send a write that may be repeated, and run it in a process that dies before it hands in the result."""
    engine.dispatched("safe_write")
    engine.seen_store.before["transact"] += [lambda: None, raising(SystemExit("dead"))]
    with pytest.raises(SystemExit):
        engine.run()
    engine.store.lose_call(engine.alive())


def test_message_that_comes_again_after_a_loss_is_the_next_attempt(lost: Engine) -> None:
    """Its result counts, although the message names the attempt before."""
    assert lost.run() is Canvas.CONTINUES
    assert (lost.calls[0].attempt, lost.contents, lost.late) == (2, ["safe_write done"], [])


def test_next_attempt_whose_start_may_not_be_stored_is_handed_back(lost: Engine) -> None:
    """Else nobody could start it before its lease is over."""
    lost.seen_store.after["transact"].append(raising(SILENT))
    assert lost.run() is Canvas.STAYS
    assert (lost.ran, lost.calls[0].attempt, lost.calls[0].status) == (["safe_write"], 2, CallStatus.PENDING)


def test_write_past_its_time_is_in_doubt(writing: Engine) -> None:
    """It is never a timeout, since its effect may have happened; later calls do not run, and a coordinator is woken."""
    writing.bodies["write"] = lambda: writing.clock.wait(20.0)
    assert writing.run() is Canvas.STAYS
    assert outcome(writing).startswith("outcome_unknown: write started and did not end in time")
    assert writing.contents[1].startswith("denied: not_run: ")
    assert writing.sent.advances == 1


@pytest.mark.parametrize(("late_s", "may_run_s"), [(0.7, 10.0), (1.9, 10.0 - (1.9 - TIMING.hard_s / 2))])
def test_slow_start_takes_no_time_from_a_write(writing: Engine, late_s: float, may_run_s: float) -> None:
    """Its ``timeout_s`` counts from its start, as far as the hard limit, which counts from the message, allows it."""
    for call_id, runs_s in (("0.0", may_run_s - 0.01), ("0.1", may_run_s + 0.01)):
        writing.seen_gate.after["admits_write"].append(lambda: writing.clock.wait(late_s))
        writing.bodies["write"] = partial(writing.clock.wait, runs_s)
        writing.run(call_id)
    in_time, too_late = writing.contents
    assert in_time == "null"
    assert too_late.startswith("outcome_unknown: write started and did not end in time")


def test_slow_start_never_takes_a_write_beyond_its_turn(writing: Engine) -> None:
    """The turn's deadline is not moved by it."""
    writing.clock.now_s = DEADLINE - 9
    writing.seen_gate.after["admits_write"].append(lambda: writing.clock.wait(0.7))
    writing.bodies["write"] = lambda: writing.clock.wait(8.31)
    assert writing.run() is Canvas.STAYS
    assert outcome(writing).startswith("outcome_unknown: write started and did not end in time")


def test_write_whose_time_ends_before_its_body_is_denied(writing: Engine) -> None:
    """Its body was never called, so nothing is in doubt."""
    writing.clock.now_s = DEADLINE - 1
    writing.seen_gate.after["admits_write"].append(lambda: writing.clock.wait(1.5))
    assert writing.run() is Canvas.CONTINUES
    assert writing.ran == []
    assert outcome(writing) == "denied: deadline: the time of write ended before it could start"
    assert (writing.calls[0].started_at, writing.calls[0].worker) == (None, None)


def deploy_anew(engine: Engine, tool: str, *, raw: bool = False) -> None:
    """Give the tool processes another version of the tool, with one more argument."""
    registry = Registry()
    if raw:
        schema = {"properties": {"count": {"type": "integer"}}, "required": ["count"]}
        registry.add_tool(given, name=tool, schema=schema, description="Raw.")
    else:
        registry.tool(name=tool)(counted)
    tools = engine.tools
    anew = replace(registry.tools[tool], effect=tools[tool].effect)
    engine.run_calls_with(tools={**tools, tool: anew})


def counted(count: int) -> int:
    """A tool's function."""
    return count


def given(arguments: dict[str, object]) -> object:
    """A function of a tool that brings its own schema."""
    return arguments["count"]


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("tool", ["look", "write"])
def test_arguments_that_a_newer_version_does_not_take_are_a_denial(engine: Engine, tool: str, raw: bool) -> None:
    """They were checked before the deployment: nothing has run, and the rest of the plan runs."""
    engine.dispatched(tool, "write")
    deploy_anew(engine, tool, raw=raw)
    assert engine.run() is Canvas.CONTINUES
    engine.says(answers("ok"))
    if tool == "look":
        engine.advance()
    engine.run_calls_with(tools=Engine().tools)
    assert engine.run("0.1") is Canvas.CONTINUES
    engine.advance()
    assert engine.contents == ["denied: validation: count: required, but missing", "write done"]
    assert engine.turn.used.tool_calls == 1


def test_arguments_that_a_newer_version_does_not_take_leave_a_doubt_in_doubt(lost: Engine) -> None:
    """An earlier attempt, in a process that died, may have had its effect."""
    deploy_anew(lost, "safe_write")
    lost.run()
    said = "outcome_unknown: safe_write started and could not run again: count: required, but missing; its effect"
    assert outcome(lost).startswith(said)


def test_arguments_that_a_body_finds_invalid_are_its_failure(writing: Engine) -> None:
    """The body has run, so what it raises is a failure, and no denial."""
    writing.bodies["write"] = raising(ArgumentsInvalid(("count: of another tool",)))
    writing.run()
    assert outcome(writing) == "ArgumentsInvalid: count: of another tool"


def test_write_cut_by_a_cancel_is_in_doubt(writing: Engine) -> None:
    """The turn has ended by the time the write stops, and nothing more is stored."""

    def cancel() -> None:
        writing.store.cancel(TURN_ID)
        writing.advance()

    writing.bodies["write"] = cancel
    assert writing.run() is Canvas.STAYS
    assert outcome(writing).startswith("outcome_unknown: write started and the turn was cancelled")
    assert writing.event_types[-1] == "turn.cancelled"


def test_write_cut_before_the_turn_has_ended_says_why(writing: Engine) -> None:
    """It hands in its outcome, that it was cancelled, before the turn ends; done twice, that is one outcome."""

    def cancel() -> None:
        writing.store.cancel(TURN_ID)
        raise DeadlineReached

    writing.bodies["write"] = cancel
    writing.seen_store.after["transact"] += [lambda: None, raising(SILENT)]
    assert writing.run() is Canvas.STAYS
    assert outcome(writing).startswith("outcome_unknown: write started and the turn was cancelled; ")
    assert writing.event_types.count("tool.late") == 0


@pytest.mark.parametrize("error", PASSING)
def test_write_hands_in_patiently(writing: Engine, error: Exception) -> None:
    """If a commit's answer is lost the outcome is handed in again, and counts once."""
    writing.seen_store.before["transact"] += [lambda: None, raising(error)]
    writing.seen_store.after["transact"] += [lambda: None, raising(error)]
    assert writing.run() is Canvas.CONTINUES
    assert outcome(writing) == "write done"
    assert writing.event_types.count("tool.completed") == 1


def test_write_that_cannot_hand_in_is_found_by_its_lease(writing: Engine) -> None:
    """If the journal never gets the outcome, the call is in doubt once its lease has ended."""
    writing.seen_store.before["transact"] += [lambda: None, *[raising(SILENT)] * HAND_IN_TRIES]
    assert writing.run() is Canvas.STAYS
    assert writing.calls[0].status is CallStatus.RUNNING
    writing.clock.now_s += TIMING.lease_ttl_s
    writing.says(answers("ok"))
    writing.advance()
    assert outcome(writing).startswith("outcome_unknown: write started and ")


def test_tool_of_no_named_effect_that_dies_is_in_doubt() -> None:
    """It may have done anything, so it is not run again, and later calls do not run."""
    engine = Engine(mystery=None)
    engine.dispatched("mystery", "mystery")
    engine.seen_store.before["transact"] += [lambda: None, *[raising(SILENT)] * HAND_IN_TRIES]
    assert engine.run() is Canvas.STAYS
    engine.clock.now_s += TIMING.lease_ttl_s
    engine.says(answers("ok"))
    engine.work()
    assert engine.ran == ["mystery"]
    assert engine.contents[0].startswith("outcome_unknown: mystery started and ")
    assert engine.contents[1].startswith("denied: not_run: ")


def test_write_whose_store_does_not_answer_is_not_started(writing: Engine) -> None:
    """The chain stops here, and a look-in sends it again."""
    writing.seen_store.before["transact"].append(raising(SILENT))
    assert writing.run() is Canvas.STAYS
    assert writing.ran == []


@pytest.mark.parametrize(("tool", "answered"), [("write", 0), ("lock_write", 0), ("lock_write", 1)])
def test_write_whose_begin_is_not_answered_is_sent_again(tool: str, answered: int) -> None:
    """The start was committed, but the body not entered: it soon runs, once, and nothing is in doubt."""
    engine = Engine(write=Effect.LOCAL_WRITE, lock_write=Effect.LOCAL_WRITE)
    engine.dispatched(tool, "write")
    engine.seen_store.after["transact"] += [*[lambda: None] * answered, raising(SILENT)]
    assert engine.run() is Canvas.STAYS
    assert (engine.ran, engine.calls[0].status) == ([], CallStatus.PENDING)
    assert engine.turn.wake_at == engine.clock.now_s, "somebody looks at once"
    engine.says(answers("ok"))
    engine.work()
    assert engine.contents == [f"{tool} done", "write done"]
    assert engine.ran == [tool, "write"]


def test_write_that_ran_is_not_run_again_by_a_message_that_is_not_answered(writing: Engine) -> None:
    """Its process could not hand in the result, and gets the message again while the journal is still away."""
    writing.seen_store.before["transact"] += [lambda: None, *[raising(SILENT)] * (HAND_IN_TRIES + 1)]
    assert [writing.run(), writing.run()] == [Canvas.STAYS, Canvas.STAYS]
    assert writing.calls[0].status is CallStatus.RUNNING
    writing.says(answers("ok"))
    writing.clock.now_s += TIMING.lease_ttl_s
    writing.work()
    assert writing.ran == ["write"]
    assert outcome(writing).startswith("outcome_unknown: write started and ")


# --- what the body gives


@pytest.mark.parametrize("tool", ["look", "write"])
def test_tool_that_this_worker_does_not_serve_is_denied(tool: str) -> None:
    """A worker with another app reports that, and the turn continues."""
    engine = Engine()
    engine.dispatched(tool)
    engine.run_calls_with(tools={})
    assert engine.run() is Canvas.CONTINUES
    engine.says(answers("ok"))
    engine.advance()
    assert outcome(engine) == f"denied: validation: {tool} is not served by the worker that was asked to run it"


@pytest.mark.parametrize(("tool", "now"), [("look", Effect.LOCAL_WRITE), ("write", Effect.READ_ONLY)])
def test_tool_that_is_of_another_kind_here_does_not_run(tool: str, now: Effect) -> None:
    """A write that a coordinator of another version sent as a read would run again whenever its result is lost."""
    engine = Engine()
    engine.dispatched(tool)
    tools = engine.tools
    engine.run_calls_with(tools={**tools, tool: replace(tools[tool], effect=now)})
    assert engine.run() is Canvas.CONTINUES
    assert engine.ran == []
    engine.says(answers("ok"))
    engine.advance()
    assert outcome(engine) == f"denied: validation: {tool} is not served by the worker that was asked to run it"


@pytest.mark.parametrize(("tool", "is_gone"), [("look", True), ("write", False)])
def test_name_of_one_of_the_harnesss_own_tools_may_be_another_tools(tool: str, is_gone: bool) -> None:
    """The call of an agent that is gone, and a write whose agent lacks it by now, are of the application's tool."""
    engine = Engine()
    engine.dispatched(tool)
    (agent,) = engine.coordinator.agents.values()
    ours = replace(engine.tools["look"], name=tool, invoke=raising(InvariantError("the harness's own")))
    engine.run_calls_with(own={tool: ours}, agents={} if is_gone else {agent.name: replace(agent, tools=())})
    assert engine.run() is Canvas.CONTINUES
    assert engine.ran == [tool]


def test_write_that_this_worker_does_not_serve_leaves_a_doubt_in_doubt(lost: Engine) -> None:
    """Otherwise the model's repeat would get a key of its own, and the effect might happen twice."""
    lost.run_calls_with(tools={})
    assert lost.run() is Canvas.STAYS
    assert outcome(lost).startswith("outcome_unknown: safe_write started and could not run again: ")


def test_long_output_is_stored_aside(writing: Engine) -> None:
    """The model reads a reference; bytes and row exist once the call has ended."""
    writing.bodies["write"] = lambda: "x" * 300
    assert writing.run() is Canvas.CONTINUES
    assert outcome(writing) == "art_1: " + "x" * 200
    (artifact,) = writing.store.artifacts.values()
    assert (artifact.size_bytes, artifact.call_id) == (300, "0.0")
    assert writing.blobs.get(artifact.url) == b"x" * 300


def test_long_output_is_cut_when_the_store_refuses(writing: Engine) -> None:
    """The call has run, so its result must not be lost for lack of space."""
    writing.run_calls_with(body=replace(writing.runs_calls_with["body"], threshold_chars=100))
    writing.blobs.broken = True
    writing.bodies["write"] = lambda: "x" * 300
    assert writing.run() is Canvas.CONTINUES
    assert len(outcome(writing)) == 100
    assert outcome(writing).endswith("… [cut: 300 characters, and the artifact store did not take them]")


def test_long_output_is_cut_when_the_store_hangs(writing: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that did its work must not count as lost because of its output's store."""
    free = threading.Event()

    def put(_self: KeptBlobs, key: str, _data: bytes) -> str:
        free.wait(30)
        return key

    monkeypatch.setattr(KeptBlobs, "put", put)
    monkeypatch.setattr(tool_body, "LONGEST_PUT_S", 0.05)
    writing.bodies["write"] = lambda: "x" * 300
    assert writing.run() is Canvas.CONTINUES
    free.set()
    assert outcome(writing).startswith("xxx")
    assert "artifact store did not take them" in outcome(writing)
    assert writing.store.artifacts == {}


def test_output_that_is_stored_too_late_is_removed(writing: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call refers to it, so nobody else would find the bytes."""
    free, removed = threading.Event(), threading.Event()
    store, remove = KeptBlobs.put, KeptBlobs.delete

    def put(self: KeptBlobs, key: str, data: bytes) -> str:
        free.wait(30)
        return store(self, key, data)

    def delete(self: KeptBlobs, url: str) -> None:
        remove(self, url)
        removed.set()

    monkeypatch.setattr(KeptBlobs, "put", put)
    monkeypatch.setattr(KeptBlobs, "delete", delete)
    monkeypatch.setattr(tool_body, "LONGEST_PUT_S", 0.05)
    writing.bodies["write"] = lambda: "x" * 300
    assert writing.run() is Canvas.CONTINUES
    assert writing.store.artifacts == {}
    free.set()
    assert removed.wait(30)
    assert writing.blobs.kept == {}


@pytest.mark.parametrize("tool", ["look", "write"])
def test_stored_output_of_a_late_result_is_removed(engine: Engine, tool: str) -> None:
    """There will never be a row by which its bytes could be found."""
    engine.dispatched(tool)

    def end() -> str:
        engine.store.cancel(TURN_ID)
        engine.advance()
        engine.flush()
        return "x" * 300

    engine.bodies[tool] = end
    engine.run()
    assert engine.late == ["late"]
    assert engine.blobs.kept == {}


@pytest.mark.parametrize("error", PASSING)
def test_stored_output_is_kept_if_nobody_says_whether_it_is_named(writing: Engine, error: Exception) -> None:
    """A call may refer to it after all; the message has been served all the same."""

    def end() -> str:
        writing.store.cancel(TURN_ID)
        writing.advance()
        writing.flush()
        return "x" * 300

    artifacts, failures = Interrupted(lambda: writing.artifacts), list[str]()
    artifacts.before["url_of"] += [raising(error)] * HAND_IN_TRIES
    writing.run_calls_with(artifacts=artifacts, on_failure=lambda: failures.append("failed"))
    writing.bodies["write"] = end
    assert writing.run() is Canvas.STAYS
    assert (writing.late, failures) == (["late"], [])
    assert list(writing.blobs.kept.values()) == [b"x" * 300]


def test_stored_output_that_the_journal_names_stays(reading: Engine) -> None:
    """Here the gate accepted it, its answer and then the gate were lost, and the repeat is refused."""
    reading.bodies["look"] = lambda: "x" * 300

    def collected() -> None:
        reading.says(answers("ok"))
        reading.advance()
        reading.flush()
        raise SILENT

    reading.seen_gate.after["complete"].append(collected)
    reading.run()
    (artifact,) = reading.store.artifacts.values()
    assert reading.late == ["late"]
    assert reading.blobs.get(artifact.url) == b"x" * 300


def test_late_result_whose_bytes_cannot_be_removed_is_said(reading: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """That is logged; the call has ended and nothing else fails."""

    def flush() -> str:
        reading.flush()
        return "x" * 300

    def refuse() -> None:
        reading.blobs.broken = True

    reading.bodies["look"] = flush
    reading.seen_gate.before["complete"].append(refuse)
    assert reading.run() is Canvas.CONTINUES
    assert "bytes at memory://turn/art_1 not removed" in caplog.text


@pytest.mark.usefixtures("no_threads")
def test_long_output_is_cut_when_there_is_no_thread_to_store_it(writing: Engine) -> None:
    """The write is done, and must not end in doubt because the system refuses threads."""
    writing.bodies["write"] = lambda: "x" * 300
    assert writing.run() is Canvas.CONTINUES
    assert "artifact store did not take them" in outcome(writing)


LARGE_CHARS = 150_000_000
SPARE_BYTES = 30_000_000


@pytest.fixture
def short_of_memory() -> Generator[Callable[[], object]]:
    """Leave this process less memory than one more copy of a large output takes."""
    before = resource.getrlimit(resource.RLIMIT_AS)

    def take() -> None:
        gc.collect()  # else what an earlier test left may be given back later, and be enough
        size_kb = re.search(r"VmSize:\s+(\d+)", Path("/proc/self/status").read_text())
        assert size_kb is not None
        resource.setrlimit(resource.RLIMIT_AS, (int(size_kb[1]) * 1024 + SPARE_BYTES, before[1]))

    yield take
    resource.setrlimit(resource.RLIMIT_AS, before)


LOST = "outcome_unknown: write started, and its result was lost: MemoryError: (no message); "


@pytest.mark.parametrize(
    ("end", "kind", "goes", "told"),
    [
        ("\x00", str, Canvas.STAYS, LOST),
        ("", list, Canvas.STAYS, LOST),
        ("", str, Canvas.CONTINUES, "artifact store did not take them]"),
    ],
    ids=["to clean it", "to make its JSON", "to store it"],
)
def test_output_for_which_there_is_no_memory_is_an_outcome(
    writing: Engine,
    short_of_memory: Callable[[], object],
    end: str,
    kind: type[str | list[str]],
    goes: Canvas,
    told: str,
) -> None:
    """It does not reach the parent process as an error, and a write's is a doubt, not a failure to be retried."""

    def body() -> object:
        output = "x" * LARGE_CHARS + end
        short_of_memory()
        return output if kind is str else [output]

    writing.bodies["write"] = body
    assert writing.run() is goes
    assert told in outcome(writing)


def around_the_body(*, before: Sequence[Exception] = (), after: Sequence[Exception] = ()) -> ToolBody:
    """A runner of bodies whose soft deadline fails with such an error as it begins or ends."""

    @contextmanager
    def deadline(_remaining_s: float, _is_revoked: Callable[[], bool]) -> Generator[None]:
        for error in before:
            raise error
        yield
        for error in after:
            raise error

    body: ToolBody = Engine().runs_calls_with["body"]
    return replace(body, soft_deadline=deadline)


@pytest.mark.parametrize("error", [MemoryError(), OSError("no descriptor")], ids=["memory", "system"])
def test_write_that_returned_is_in_doubt_whatever_fails_before_its_result_is_made(
    writing: Engine, error: Exception
) -> None:
    """A model that read of a failure would ask for the write again."""
    writing.run_calls_with(body=around_the_body(after=[error]))
    assert writing.run() is Canvas.STAYS
    assert writing.ran == ["write"]
    assert outcome(writing).startswith("outcome_unknown: write started, and its result was lost: ")


@pytest.mark.parametrize("file", ["turn/running/tool_body.py", "turn/running/forked_processes.py"])
def test_write_that_was_done_is_never_reported_as_failed_whatever_line_fails(file: str) -> None:
    """It was done, or is in doubt, or is left to the parent process; only a write that did not begin has failed."""
    for at in range(MOST_LINES):
        writing = Engine(write=Effect.LOCAL_WRITE)
        writing.dispatched("write")
        striker = Striker(file, at)
        striker.run(writing.run)
        if not striker.has_struck:
            assert at > 1
            return
        if writing.ran and writing.calls[0].outcome is not None:
            assert outcome(writing).startswith(("write done", "outcome_unknown: ")), at
    raise AssertionError(f"there are more than {MOST_LINES} lines")


def test_write_that_fails_before_its_body_did_nothing(writing: Engine) -> None:
    """It is a failure like any other."""
    writing.run_calls_with(body=around_the_body(before=[OSError("no descriptor")]))
    assert writing.run() is Canvas.CONTINUES
    assert writing.ran == []
    assert outcome(writing) == "OSError: no descriptor"


def test_write_that_fails_before_its_body_is_in_doubt_if_an_earlier_attempt_was_lost(lost: Engine) -> None:
    """The earlier attempt may have had its effect."""
    lost.run_calls_with(body=around_the_body(before=[OSError("no descriptor")]))
    lost.run()
    assert outcome(lost).startswith(f"outcome_unknown: {LOST_BEFORE}")


def test_deadline_sees_its_own_stop_though_an_earlier_attempt_was_lost(lost: Engine) -> None:
    """Only then does it end what the body started."""
    seen: list[BaseException] = []
    stop = TimeoutError("stopped")

    @contextmanager
    def deadline(_remaining_s: float, _is_revoked: Callable[[], bool]) -> Generator[None]:
        try:
            yield
        except TimeoutError as error:
            seen.append(error)
            raise DeadlineReached from None

    lost.bodies["safe_write"] = raising(stop)
    lost.run_calls_with(body=replace(around_the_body(), soft_deadline=deadline))
    lost.run()
    assert seen == [stop]


LONG = "x" * 5_000_000


@pytest.mark.parametrize(
    ("body", "begins"),
    [
        (raising(ToolError(LONG)), "xx"),
        (raising(ToolOutcomeUnknown(LONG)), "outcome_unknown: write started, and xx"),
        (raising(ArgumentsOutdated((LONG,))), "denied: validation: xx"),
        (lambda: {"error": LONG}, '{"error":"xx'),
    ],
    ids=["raised", "in doubt", "outdated", "returned"],
)
def test_long_failure_is_cut(engine: Engine, body: Callable[[], object], begins: str) -> None:
    """It stays in the session's history, which no model could be sent if it were too long."""
    engine.dispatched("write")
    engine.bodies["write"] = body
    engine.run()
    said = outcome(engine)
    assert said.startswith(begins)
    assert len(said.removeprefix("denied: validation: ")) == THRESHOLD_CHARS
    assert re.search(r"x… \[cut: 5000\d\d\d characters\]$", said)


@pytest.mark.parametrize("tool", ["look", "write"])
def test_who_watches_is_told_that_a_tool_starts(engine: Engine, tool: str) -> None:
    """The hint comes after admission and before the body; a repeated message gives none."""
    hints: list[tuple[str, str, object, list[str]]] = []

    def hint(turn_id: str, kind: str, data: object) -> None:
        hints.append((turn_id, kind, data, list(engine.ran)))

    engine.run_calls_with(hint=hint)
    engine.dispatched(tool)
    engine.run()
    engine.run()
    assert hints == [(TURN_ID, "tool.started", {"call_id": "0.0", "tool": tool, "attempt": 1}, [])]


@pytest.mark.parametrize("tool", ["look", "write"])
def test_body_is_not_entered_once_its_time_is_over(engine: Engine, tool: str) -> None:
    """It is not entered even for the moment that a signal takes, and has no result that could come late."""
    engine.dispatched(tool)
    short = {name: replace(spec, timeout_s=1.0) for name, spec in engine.tools.items()}

    def hang(_turn_id: str, _kind: str, _data: object) -> None:
        engine.clock.wait(STALE_START_S)

    engine.run_calls_with(tools=short, hint=hang)
    engine.store.turns[TURN_ID] = replace(engine.turn, deadline_at=engine.clock.monotonic() + 1.0)
    engine.run()
    assert (engine.ran, engine.late) == ([], [])


def test_passing_fault_of_a_safe_tool_is_tried_again_unseen(reading: Engine) -> None:
    """The retries, with pauses, stay within the deadline and within one attempt."""
    faults = [ToolTransientError("busy"), ToolTransientError("busy")]

    def sometimes() -> str:
        if faults:
            raise faults.pop()
        return "third time lucky"

    reading.bodies["look"] = sometimes
    reading.run()
    reading.says(answers("ok"))
    reading.advance()
    assert outcome(reading) == "third time lucky"
    assert reading.clock.now_s > NOW, "it paused"
    assert (len(reading.ran), reading.calls[0].attempt) == (3, 1)


def test_pauses_between_tries_grow_to_two_seconds(reading: Engine) -> None:
    """What a page on tools promises: a service that is away for a moment is soon asked again, and never much later."""
    tried_at: list[float] = []

    def eighth_time_lucky() -> None:
        tried_at.append(reading.clock.now_s)
        if len(tried_at) < 8:
            raise ToolTransientError("busy")

    reading.bodies["look"] = eighth_time_lucky
    reading.run()
    pauses = [later - earlier for earlier, later in pairwise(tried_at)]
    assert len(pauses) == 7
    assert all(0.0 <= pause <= min(0.1 * 2**nth, 2.0) for nth, pause in enumerate(pauses)), pauses


def test_passing_fault_of_an_unsafe_tool_is_a_failure(writing: Engine) -> None:
    """The tool does not promise that it may run twice."""
    writing.bodies["write"] = raising(ToolTransientError("busy"))
    writing.run()
    assert (outcome(writing), writing.ran) == ("busy", ["write"])


UNANSWERED, LOST_BEFORE = (
    "safe_write started, and no answer; ",
    "safe_write started, and its process was lost, and then it ",
)


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (ConnectionRefusedError("refused"), None),
        (SystemExit(3), None),
        (ToolError("no such order"), "no such order"),
    ],
    ids=["unforeseen", "exit", "answer"],
)
@pytest.mark.parametrize("is_lost", [False, True], ids=["unanswered", "lost"])
def test_failure_that_is_no_answer_does_not_settle_what_an_earlier_try_did(
    last: BaseException, said: str | None, is_lost: bool
) -> None:
    """If a try of a write got no answer, or its process was lost, only an answer of the tool settles the outcome.

    Otherwise the model would read of a failure, ask again, and the write would happen twice under two keys.
    """
    engine = Engine(safe_write=Effect.LOCAL_WRITE)
    if is_lost:
        die_after_the_body(engine)
    else:
        engine.dispatched("safe_write")
    errors = [] if is_lost else [ToolOutcomeUnknown("no answer")]

    def fail() -> None:
        raise errors.pop() if errors else last

    engine.bodies["safe_write"] = fail
    engine.run()
    assert outcome(engine).startswith(said or f"outcome_unknown: {LOST_BEFORE if is_lost else UNANSWERED}")


def test_passing_fault_does_not_settle_what_an_earlier_try_did() -> None:
    """A later try that failed to connect did nothing, and says nothing of the try before it."""
    last = ToolTransientError("away")
    bodies = [raising(last), raising(ToolOutcomeUnknown("no answer"))]
    tries = Tries(lambda: bodies.pop()())  # noqa: PLW0108 - another one each time
    with pytest.raises(ToolOutcomeUnknown) as unanswered:
        tries()
    with pytest.raises(ToolTransientError):
        tries()
    assert tries.doubt_left_by(last) is unanswered.value


def test_write_of_unknown_outcome_is_in_doubt(writing: Engine) -> None:
    """It is not run again, and later calls of its message do not run."""
    writing.bodies["write"] = raising(ToolOutcomeUnknown("no answer"))
    assert writing.run() is Canvas.STAYS
    assert outcome(writing).startswith("outcome_unknown: write started, and no answer; ")
    assert writing.ran == ["write"]


def test_exception_after_the_deadline_is_no_outcome(writing: Engine) -> None:
    """A tool that fails because it was stopped is in doubt, whatever it raises."""

    def fail_late() -> None:
        writing.clock.wait(20.0)
        raise ValueError("interrupted")

    writing.bodies["write"] = fail_late
    writing.run()
    assert outcome(writing).startswith("outcome_unknown: ")


def test_any_exception_is_an_outcome(writing: Engine) -> None:
    """A tool that calls ``exit`` does not end its process."""
    writing.bodies["write"] = raising(SystemExit(3))
    assert writing.run() is Canvas.CONTINUES
    assert outcome(writing) == "SystemExit: 3"
