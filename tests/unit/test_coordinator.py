"""One visit to a turn: what is sent, what is put off, and how the turn ends if something fails."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from harness_worker import Hooks
from harness_worker.core.budget import Usage
from harness_worker.core.records import CallStatus
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.hooks import PreToolUse, TurnEnd, TurnStart
from harness_worker.entrypoints.worker.coordinator import look_at_stopped
from harness_worker.errors import ModelError, ScriptExhausted, Stopped, TransientError
from harness_worker.ports import ModelReply, ReadAttempt
from harness_worker.turn import coordinator
from harness_worker.turn.running.job import Canvas
from harness_worker.wire import StopReason, TurnStatus
from tests.contract.gate_kit import a_run
from tests.unit.builders import NOW, TIMING, a_turn
from tests.unit.engine_kit import MODEL_TIMEOUT_S, TIMEOUT_S, TURN_ID, Engine, answers, asks, raising
from tests.unit.hook_kit import Recorder

SILENT = TransientError("no answer")


@pytest.fixture
def engine() -> Engine:
    """A turn of an agent with a read and a write."""
    return Engine()


def test_turn_is_worked_to_an_answer(engine: Engine) -> None:
    """Reads run side by side, then writes in order, then comes the text; each visit does one step."""
    engine.says(asks("look", "look", "write", "write"), answers("all done"))
    engine.advance()
    assert engine.sent.chords == [["0.0", "0.1"]]
    assert [engine.run(call_id) for call_id in ("0.0", "0.1")] == [Canvas.CONTINUES, Canvas.CONTINUES]
    engine.advance()
    assert engine.sent.chains == [["0.2", "0.3"]]
    assert [engine.run(call_id) for call_id in ("0.2", "0.3")] == [Canvas.CONTINUES, Canvas.CONTINUES]
    engine.advance()
    assert (engine.turn.status, engine.turn.output_text) == (TurnStatus.COMPLETED, "all done")
    assert engine.contents == ["look done", "look done", "write done", "write done"]
    assert [message.role for message in engine.store.history(TURN_ID)] == ["user", "assistant", "user", "assistant"]


def test_turn_that_ended_by_itself_stops_nobody(engine: Engine) -> None:
    """No stop is broadcast, even for reads of which only the gate knew at the visit's start that they had ended."""
    engine.says(asks("write", "look"), answers("all done"))
    engine.work()
    assert (engine.turn.status, engine.sent.stops) == (TurnStatus.COMPLETED, 0)


def test_single_read_needs_no_join(engine: Engine) -> None:
    """It is sent without a chord, which would only cost time."""
    engine.dispatched("look")
    assert (engine.sent.chords, engine.sent.chains) == ([], [["0.0"]])


def test_calls_are_sent_whatever_time_the_turn_has(engine: Engine) -> None:
    """An author who wants no limit may give the largest number: in milliseconds it is more than a float can hold."""
    budget = replace(engine.turn.budget, timeout_s=sys.float_info.max)
    engine.store.turns[TURN_ID] = replace(engine.turn, budget=budget, deadline_at=sys.float_info.max)
    engine.dispatched("look", "look")
    assert engine.sent.chords == [["0.0", "0.1"]]
    assert [engine.run(call_id) for call_id in ("0.0", "0.1")] == [Canvas.CONTINUES, Canvas.CONTINUES]


def test_message_leaves_after_commit_and_gate(engine: Engine) -> None:
    """A tool that is faster than its dispatcher finds its row, and its pass at the gate."""
    seen: list[tuple[str, bool]] = []

    def look() -> None:
        admitted = engine.gate.admit(a_run(TURN_ID), 1_000)
        seen.append((engine.calls[0].status.value, bool(admitted.ticket)))

    engine.seen_sent.before["chain"].append(look)
    engine.dispatched("look")
    assert seen == [("pending", True)]


def test_model_is_asked_with_the_history(engine: Engine) -> None:
    """The request has system text, tools, messages so far, the step, and the time left."""
    engine.says(asks("write"), answers("ok"))
    engine.advance()
    engine.run()
    engine.advance()
    first, second = engine.model.requests
    assert (first.system, first.model, first.step, second.step) == ("be brief", "told", 0, 1)
    assert [tool.name for tool in first.tools] == ["look", "write"]
    assert [message.role for message in second.messages] == ["user", "assistant", "user"]
    assert first.timeout_s == MODEL_TIMEOUT_S


def test_gate_forgets_the_results_of_a_turn_that_is_over(engine: Engine) -> None:
    """They may be long, and the gate is kept for some time."""
    engine.says(asks("look"), answers("ok"))
    engine.work()
    reads = [ReadAttempt.of(call) for call in engine.calls]
    (settled,) = engine.gate.settle(TURN_ID, engine.turn.fence, reads, close=False)
    assert settled.completion is None


def test_turn_nobody_knows_is_left_alone(engine: Engine) -> None:
    """A message for a turn that does not exist does nothing."""
    engine.coordinator.advance("nonsense")
    assert engine.turn.status is TurnStatus.QUEUED


def test_finished_turn_is_left_alone(engine: Engine) -> None:
    """A late wake-up changes nothing."""
    engine.says(answers("ok"))
    engine.advance()
    before = (engine.turn, list(engine.store.events))
    engine.advance()
    assert before == (engine.turn, engine.store.events)


# --- what does not answer


def test_store_that_does_not_answer_at_the_claim_is_told(engine: Engine) -> None:
    """The caller learns that the turn was not looked at."""
    engine.seen_store.before["transact"].append(raising(SILENT))
    with pytest.raises(TransientError):
        engine.advance()
    assert engine.turn.fence == 0


@pytest.mark.parametrize("operation", ["raise_fence", "open"])
def test_gate_that_does_not_answer_puts_the_visit_off(engine: Engine, operation: str) -> None:
    """The turn is released, to be looked at again soon."""
    engine.seen_gate.before[operation].append(raising(SILENT))
    engine.says(asks("look"))
    engine.advance()
    assert engine.turn.owner is None
    assert engine.turn.wake_at == NOW + TIMING.look_s
    assert engine.sent.chains == []


SYSTEM_ERRORS = [
    MemoryError(),
    OSError(errno.EMFILE, "Too many open files"),
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EIO, "Input/output error"),
]


@pytest.mark.parametrize("error", SYSTEM_ERRORS)
def test_error_of_the_system_puts_the_visit_off(engine: Engine, error: Exception) -> None:
    """It is no bug and may pass: the turn is released, and continues at the next look."""
    engine.says(error, asks("look"), answers("ok"))
    engine.advance()
    assert (engine.turn.status, engine.turn.owner) == (TurnStatus.RUNNING, None)
    assert engine.turn.wake_at == NOW + TIMING.look_s
    engine.seen_sent.before["chain"].append(raising(error))
    engine.advance()
    assert (engine.turn.owner, engine.sent.chains) == (None, [])
    engine.clock.now_s += TIMING.look_s
    engine.work()
    assert engine.turn.status is TurnStatus.COMPLETED


@pytest.mark.parametrize("error", SYSTEM_ERRORS)
def test_error_of_the_system_at_the_claim_is_told(engine: Engine, error: Exception) -> None:
    """The caller learns that the turn was not looked at."""
    engine.seen_store.before["transact"].append(raising(error))
    with pytest.raises(TransientError):
        engine.advance()
    assert engine.turn.status is TurnStatus.QUEUED


def test_lack_of_something_beside_a_bug_loses_no_result(engine: Engine) -> None:
    """The gate is asked again, so that reads that ran are not reported as not run."""
    engine.dispatched("look")
    engine.run()
    engine.seen_gate.before["settle"] += [raising(RuntimeError("bug")), raising(MemoryError())]
    engine.advance()
    assert (engine.turn.owner, engine.contents) == (None, [])
    engine.says(answers("ok"))
    engine.advance()
    assert (engine.turn.status, engine.contents) == (TurnStatus.COMPLETED, ["look done"])


class LastingMemoryError(MemoryError):
    """A lack of memory that lasts while it is handled."""

    def __repr__(self) -> str:
        """Fail."""
        raise MemoryError


@pytest.mark.parametrize("where", ["at the claim", "later"])
def test_lack_of_memory_that_lasts_while_it_is_handled_ends_no_turn(engine: Engine, where: str) -> None:
    """It is taken for no bug; the next visit comes when the lease has ended."""
    if where == "at the claim":
        engine.seen_store.before["transact"].append(raising(LastingMemoryError()))
        with pytest.raises(MemoryError):
            engine.advance()
        engine.says(answers("ok"))
    else:
        engine.says(LastingMemoryError(), answers("ok"))
        engine.advance()
    assert not engine.turn.status.is_final
    engine.clock.now_s += TIMING.lease_ttl_s + 0.1
    engine.advance()
    assert engine.turn.status is TurnStatus.COMPLETED


def test_visit_that_has_not_even_the_means_to_let_go_is_followed_by_another(engine: Engine) -> None:
    """The next visit comes when the lease has ended."""
    engine.says(MemoryError(), answers("ok"))
    engine.seen_store.before["transact"] += [lambda: None, raising(MemoryError())]
    engine.advance()
    assert engine.turn.owner is not None
    engine.clock.now_s += TIMING.lease_ttl_s + 0.1
    engine.advance()
    assert engine.turn.status is TurnStatus.COMPLETED


def test_gate_is_closed_before_the_turn_ends(engine: Engine) -> None:
    """A coordinator that dies right after the last commit leaves no open gate behind."""
    found: list[TurnStatus] = []
    engine.says(answers("ok"))
    engine.seen_gate.before["close"].append(lambda: found.append(engine.turn.status))
    engine.advance()
    assert (found, engine.turn.status) == ([TurnStatus.RUNNING], TurnStatus.COMPLETED)


def stopped(engine: Engine) -> None:
    """A turn that was cancelled, so that the next visit ends it."""
    engine.store.turns[TURN_ID] = replace(engine.turn, cancel_requested=True)
    engine.seen_gate.before["close"] += [lambda: None, raising(SILENT)]


def exhausted(engine: Engine) -> None:
    """A turn that ends in the commit that claims it, for which the gate is not needed."""
    engine.dispatched("write")
    engine.run()
    engine.store.turns[TURN_ID] = replace(engine.turn, used=Usage(steps=6))
    engine.seen_gate.before["raise_fence"].append(raising(SILENT))
    engine.seen_gate.before["close"].append(raising(SILENT))


@pytest.mark.parametrize("nearly_over", [stopped, exhausted])
def test_gate_that_does_not_answer_at_the_end_keeps_nobody_from_hearing_of_it(
    nearly_over: Callable[[Engine], None],
) -> None:
    """The commit stands, and the hooks are called."""
    told = Recorder()
    engine = Engine(told)
    nearly_over(engine)
    engine.advance()
    assert engine.turn.status.is_final
    assert len(told.of(TurnEnd)) == 1


def test_bug_at_the_gate_after_the_end_keeps_nobody_from_hearing_of_it() -> None:
    """The end is reported to hooks and judges only once, so it must be done now."""
    told = Recorder()
    engine = Engine(told)
    engine.seen_gate.before["close"] += [lambda: None, raising(RuntimeError("bug"))]
    engine.says(answers("ok"))
    engine.advance()
    assert (engine.turn.status, len(told.of(TurnEnd))) == (TurnStatus.COMPLETED, 1)


def test_gate_that_does_not_answer_at_the_end_keeps_no_turn_waiting(engine: Engine) -> None:
    """The next turn of the session is woken."""
    engine.store.insert_turn(a_turn(id="next"))
    engine.seen_gate.before["close"] += [lambda: None, raising(SILENT)]
    engine.says(answers("ok"))
    engine.advance()
    assert engine.seen_gate.before["close"] == []
    assert engine.sent.begun == ["next"]


@pytest.mark.parametrize("operation", ["next_of_session", "next_of_tenant"])
def test_store_that_does_not_answer_after_the_end_keeps_no_hook_from_hearing_of_it(operation: str) -> None:
    """A waiting turn would be found later, but nobody else would call the hooks."""
    told = Recorder()
    engine = Engine(told)
    engine.store.turns[TURN_ID] = replace(engine.turn, followed=True)
    engine.seen_store.before[operation].append(raising(SILENT))
    engine.says(answers("ok"))
    engine.advance()
    assert (engine.turn.status, engine.turn.owner) == (TurnStatus.COMPLETED, None)
    assert engine.seen_store.before[operation] == []
    assert len(told.of(TurnEnd)) == 1


def test_reply_is_kept_though_the_gate_does_not_answer(engine: Engine) -> None:
    """The reply was paid for, and no call is open: the journal alone is needed to end the turn."""
    engine.says(answers("paid for"), answers("paid again"))
    engine.seen_gate.before["close"] += [raising(SILENT), raising(SILENT)]
    engine.advance()
    assert (engine.turn.status, engine.turn.output_text) == (TurnStatus.COMPLETED, "paid for")
    assert (len(engine.model.requests), engine.turn.used.steps) == (1, 1)


@pytest.mark.parametrize(
    ("said", "reason", "text"),
    [
        (ModelError("refused"), StopReason.MODEL_ERROR, ""),
        (Stopped("half a sen"), StopReason.CANCELLED, "half a sen"),
    ],
)
def test_model_is_not_asked_again_though_the_gate_does_not_answer(
    engine: Engine, said: Exception, reason: StopReason, text: str
) -> None:
    """What the model said, or why it failed, is stored, since no call is open."""
    engine.says(said, answers("asked again"))
    engine.seen_gate.before["close"] += [raising(SILENT), raising(SILENT)]
    engine.advance()
    assert (engine.turn.stop_reason, engine.turn.output_text) == (reason, text)
    assert len(engine.model.requests) == 1


def test_turn_that_is_stopped_does_not_tell_of_its_start() -> None:
    """A hook that hangs at the start would prevent the end in every visit."""
    told = Recorder()
    engine = Engine(told)
    engine.store.turns[TURN_ID] = replace(engine.turn, cancel_requested=True)
    engine.advance()
    assert engine.turn.status is TurnStatus.CANCELLED
    assert (len(told.of(TurnStart)), len(told.of(TurnEnd))) == (0, 1)


def silence_gate(engine: Engine) -> None:
    """Let no operation of the gate be answered."""
    for operation in ("raise_fence", "settle", "close", "open", "admits_write"):
        engine.seen_gate.before[operation] += [raising(SILENT)] * 9


@pytest.mark.parametrize("late_s", [0.0, TIMEOUT_S + 1])
def test_turn_without_open_reads_stops_though_the_gate_does_not_answer(engine: Engine, late_s: float) -> None:
    """Cancelled or past its deadline, its write is in doubt, and a later result of it changes nothing."""
    engine.dispatched("write")

    def stopped_meanwhile() -> None:
        silence_gate(engine)
        if late_s:
            engine.clock.now_s += late_s
        else:
            engine.store.cancel(TURN_ID)
        engine.advance()

    engine.bodies["write"] = stopped_meanwhile
    assert engine.run() is Canvas.STAYS
    assert engine.turn.status is (TurnStatus.INCOMPLETE if late_s else TurnStatus.CANCELLED)
    assert [content.partition(":")[0] for content in engine.contents] == ["outcome_unknown"]
    assert (engine.late, engine.event_types[-1]) == (["late"], f"turn.{engine.turn.status}")


def test_turn_with_open_reads_waits_for_the_gate_to_stop(engine: Engine) -> None:
    """Only the gate knows the reads' outcomes."""
    engine.dispatched("look")
    engine.store.cancel(TURN_ID)
    engine.seen_gate.before["raise_fence"].append(raising(SILENT))
    engine.advance()
    assert engine.turn.status is TurnStatus.RUNNING
    engine.advance()
    assert engine.turn.status is TurnStatus.CANCELLED


@pytest.mark.usefixtures("opening_breaks")
def test_bug_ends_a_turn_without_open_reads_though_the_gate_does_not_answer(engine: Engine) -> None:
    """The gate need not be asked for the outcome of any call."""
    silence_gate(engine)
    engine.advance()
    assert engine.turn.stop_reason is StopReason.INTERNAL


def test_store_that_stays_silent_leaves_the_lease_to_run_out(engine: Engine) -> None:
    """The visit cannot even release the turn; another takes over when the lease has ended, with an event."""
    engine.says(asks("look"), asks("look"))
    engine.seen_store.before["transact"] += [lambda: None, raising(SILENT), raising(SILENT)]
    engine.advance()
    assert engine.turn.owner is not None
    engine.clock.now_s += TIMING.lease_ttl_s + 0.1
    engine.advance()
    assert engine.sent.chains == [["0.0"]]
    assert "turn.redelivered" in engine.event_types


def test_commit_whose_answer_was_lost_is_not_done_twice(engine: Engine) -> None:
    """The plan was stored; the next visit sends the calls that were not sent."""
    engine.seen_store.after["transact"] += [lambda: None, raising(SILENT)]
    engine.dispatched("look")
    assert (len(engine.calls), engine.sent.chains) == (1, [])
    engine.clock.now_s += TIMING.look_s
    engine.advance()
    assert engine.sent.chains == [["0.0"]]
    assert len(engine.model.requests) == 1


def test_agent_of_another_worker_is_put_off(engine: Engine) -> None:
    """A worker that does not serve the agent leaves the turn to another."""
    replace(engine.coordinator, agents={}).advance(TURN_ID)
    assert (engine.turn.status, engine.turn.owner) == (TurnStatus.RUNNING, None)
    assert engine.turn.wake_at == NOW + TIMING.look_s


UNKNOWN = "denied: validation: unknown tool write; available: look"


def deploy_away(engine: Engine, tool: str) -> None:
    """Remove a tool from the agent, as a deployment might."""
    (agent,) = engine.coordinator.agents.values()
    engine.agent_is(tools=tuple(each for each in agent.tools if each.name != tool))


def test_planned_call_of_a_tool_deployed_away_is_denied(engine: Engine) -> None:
    """No worker would take its message; the rest of the plan runs, and the model reads which tools there are."""
    engine.says(asks("look", "write", "look"), answers("ok"))
    engine.advance()
    engine.run("0.0")
    deploy_away(engine, "write")
    engine.advance()
    assert (engine.contents[1], engine.sent.chains) == (UNKNOWN, [["0.0"], ["0.2"]])
    engine.run("0.2")
    engine.advance()
    assert engine.contents == ["look done", UNKNOWN, "look done"]
    assert (engine.turn.status, engine.turn.used.tool_calls) == (TurnStatus.COMPLETED, 2)


@pytest.mark.parametrize("arguments", [None, {"n": 1}])
def test_approved_call_of_a_tool_deployed_away_is_denied(arguments: dict[str, int] | None) -> None:
    """This holds with and without edited arguments."""
    engine = Engine(look=Effect.READ_ONLY, ask_write=Effect.LOCAL_WRITE)
    engine.says(asks("ask_write"), answers("ok"))
    engine.advance()
    deploy_away(engine, "ask_write")
    engine.answer("0.0", "approve", arguments=arguments)
    engine.advance()
    assert engine.contents == ["denied: validation: unknown tool ask_write; available: look"]
    assert (engine.turn.status, engine.sent.chains) == (TurnStatus.COMPLETED, [])


def test_call_of_a_tool_deployed_away_is_denied_before_its_hooks_are_asked() -> None:
    """Hooks are not asked about calls that will not run."""
    hook = Recorder()
    engine = Engine(hook, look=Effect.READ_ONLY, write=Effect.LOCAL_WRITE)
    engine.says(asks("look", "write"), answers("ok"))
    engine.advance()
    engine.run("0.0")
    deploy_away(engine, "write")
    engine.advance()
    assert (engine.contents, [event.tool for event in hook.of(PreToolUse)]) == (["look done", UNKNOWN], ["look"])


def test_sent_call_of_a_tool_deployed_away_is_waited_for(engine: Engine) -> None:
    """An older process may still run it."""
    engine.dispatched("write")
    deploy_away(engine, "write")
    engine.clock.now_s += TIMING.look_s
    engine.advance()
    assert (engine.contents, engine.sent.chains) == ([], [["0.0"], ["0.0"]])
    engine.run()
    assert engine.contents == ["write done"]


@pytest.mark.parametrize("reason", [StopReason.CANCELLED, StopReason.DEADLINE])
def test_turn_of_an_agent_that_nobody_serves_is_stopped(engine: Engine, reason: StopReason) -> None:
    """A cancel ends it even while it waits for its model, which only a worker with the agent would ask."""
    engine.coordinator = replace(engine.coordinator, agents={})
    engine.advance()
    if reason is StopReason.CANCELLED:
        engine.store.cancel(TURN_ID)
    else:
        engine.clock.now_s += TIMEOUT_S + 1
    engine.advance()
    assert (engine.turn.status.is_final, engine.turn.stop_reason) == (True, reason)


# --- a bug of ours in the commit that opens a visit


@pytest.fixture
def opening_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the commit that opens a visit raise, whenever it is made."""

    def open_visit(*_: object, **_others: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(coordinator, "open_visit", open_visit)


@pytest.mark.parametrize(
    ("late_s", "reason"), [(0.0, StopReason.INTERNAL), (TIMEOUT_S + 1, StopReason.DEADLINE)], ids=["in time", "late"]
)
def test_bug_in_the_opening_commit_ends_the_turn(late_s: float, reason: StopReason, request: Any) -> None:  # noqa: ANN401
    """Otherwise every visit would meet it, even after the deadline; the call that was sent has its one result."""
    told = Recorder()
    engine = Engine(told)
    engine.dispatched("write")
    request.getfixturevalue("opening_breaks")
    engine.clock.now_s += late_s
    engine.advance()
    assert (engine.turn.status.is_final, engine.turn.stop_reason) == (True, reason)
    assert (engine.turn.wake_at, engine.turn.owner, len(told.of(TurnEnd))) == (None, None, 1)
    assert [call.status for call in engine.calls] == [CallStatus.ENDED]


def test_bug_in_the_opening_commit_tells_what_the_reads_came_to(engine: Engine, request: Any) -> None:  # noqa: ANN401
    """Reads that ran are not reported as not run, even if the gate does not answer at first."""
    engine.dispatched("look", "look")
    engine.run("0.0")
    request.getfixturevalue("opening_breaks")
    engine.seen_gate.before["settle"].append(raising(SILENT))
    engine.advance()
    assert (engine.turn.owner, engine.contents) == (None, [])
    engine.advance()
    assert engine.turn.stop_reason is StopReason.INTERNAL
    assert engine.contents == ["look done", "denied: not_run: the turn failed"]


def test_turn_that_cannot_be_read_is_left_to_who_can(engine: Engine) -> None:
    """A newer worker may have written what this one cannot read; other turns are still driven."""
    engine.seen_store.before["transact"] += [raising(ValueError("no such status"))] * 2
    with pytest.raises(ValueError, match="no such status"):
        engine.advance()
    assert (engine.turn.status, engine.turn.fence) == (TurnStatus.QUEUED, 0)


@pytest.mark.usefixtures("opening_breaks")
def test_bug_behind_a_silent_store_is_looked_at_again(engine: Engine) -> None:
    """If the end cannot be stored, a later visit stores it."""
    engine.seen_store.before["transact"] += [lambda: None, lambda: None, raising(SILENT)]
    engine.advance()
    assert (engine.turn.status, engine.turn.owner) == (TurnStatus.RUNNING, None)
    engine.advance()
    assert engine.turn.stop_reason is StopReason.INTERNAL


# --- models that fail


def test_model_that_fails_for_a_moment_is_asked_again_unseen(engine: Engine) -> None:
    """The retries take place within the visit; neither the model nor the client sees them."""
    engine.says(SILENT, SILENT, answers("ok"))
    engine.advance()
    assert engine.turn.status is TurnStatus.COMPLETED
    assert engine.turn.used.steps == 1
    assert engine.clock.now_s > NOW


@pytest.mark.parametrize(
    ("errors", "reason", "message"),
    [
        ([TransientError("overloaded")] * 5, StopReason.MODEL_ERROR, "overloaded"),
        ([ModelError("refused")], StopReason.MODEL_ERROR, "refused"),
        ([ScriptExhausted("no step 0")], StopReason.SCRIPT_EXHAUSTED, "no step 0"),
    ],
)
def test_model_that_fails_for_good_ends_the_turn(
    engine: Engine, errors: list[BaseException], reason: StopReason, message: str
) -> None:
    """The turn fails with a code and the provider's message; a failed model call is no step.

    Its gate is closed first: nobody would look for it later.
    """
    closed: list[TurnStatus] = []
    engine.seen_gate.before["close"] += [lambda: closed.append(engine.turn.status)]
    engine.says(*errors)
    engine.advance()
    assert closed == [TurnStatus.RUNNING]
    assert (engine.turn.status, engine.turn.stop_reason) == (TurnStatus.FAILED, reason)
    assert engine.turn.error == {"code": reason.value, "message": message}
    assert engine.turn.used.steps == 0
    assert engine.event_types[-2:] == ["step.completed", "turn.failed"]


def test_model_that_takes_too_long_ends_the_turn_incomplete(engine: Engine) -> None:
    """The turn's time has ended, which is no error of the model."""

    def slow() -> ModelReply:
        engine.clock.now_s += TIMEOUT_S  # to the process its time is over, and to the database not yet
        raise SILENT

    engine.says(slow)
    engine.advance()
    assert (engine.turn.status, engine.turn.stop_reason) == (TurnStatus.INCOMPLETE, StopReason.DEADLINE)
    assert engine.turn.error is None


def test_backoff_outlasts_an_outage_of_seconds(engine: Engine) -> None:
    """Each pause is longer than the one before, and together they last at least seven seconds."""
    asked_at = list[float]()

    def away() -> ModelReply:
        asked_at.append(engine.clock.now_s)
        raise SILENT

    engine.says(*[away] * 4, answers("ok"))
    engine.advance()
    assert engine.turn.status is TurnStatus.COMPLETED
    waits_s = [later - sooner for sooner, later in pairwise((*asked_at, engine.clock.now_s))]
    assert waits_s == sorted(waits_s)
    assert 7.4 < sum(waits_s) < 15.1


def test_backoff_ends_at_the_deadline(engine: Engine) -> None:
    """A model that keeps failing is not asked after the deadline."""
    engine.clock.now_s += TIMEOUT_S - 0.01
    engine.says(*[SILENT] * 5)
    engine.advance()
    assert engine.turn.stop_reason in (StopReason.DEADLINE, StopReason.MODEL_ERROR)
    assert engine.clock.now_s <= NOW + TIMEOUT_S + 0.001


class SlowStart(Hooks):
    """Hooks that take long at a turn's start."""

    def __init__(self) -> None:
        self.waits: Callable[[], object] = list

    def on_turn_start(self, event: TurnStart) -> None:  # noqa: ARG002 - the hook's signature
        """Wait."""
        self.waits()


@pytest.mark.parametrize("where", ["hook", "claim", "fence"])
def test_what_comes_before_the_model_is_charged_to_the_turns_time(where: str) -> None:
    """A hook, the claim's commit and the gate use the turn's time: the model has the rest."""
    hooks = SlowStart()
    engine = Engine(hooks)
    wait = partial(engine.clock.wait, TIMEOUT_S - 5.0)
    if where == "hook":
        hooks.waits = wait
    elif where == "claim":
        engine.seen_store.after["transact"].append(wait)
    else:
        engine.seen_gate.after["raise_fence"].append(wait)
    engine.says(answers("ok"))
    engine.advance()
    assert [request.timeout_s for request in engine.model.requests] == [5.0]


def test_model_no_client_serves_ends_the_turn(engine: Engine) -> None:
    """The error lists what is served."""
    step = replace(engine.coordinator.model_step, models={})
    replace(engine.coordinator, model_step=step).advance(TURN_ID)
    assert engine.turn.error is not None
    assert "'told'" in engine.turn.error["message"]


def test_stopped_model_call_keeps_what_was_said(engine: Engine) -> None:
    """A cancel stops the call, and the text said so far is part of the answer."""
    engine.says(Stopped("half a sen"))
    engine.advance()
    assert (engine.turn.status, engine.turn.output_text) == (TurnStatus.CANCELLED, "half a sen")


def test_stopped_model_call_says_what_every_database_holds(engine: Engine) -> None:
    """The text is kept without U+0000 and lone surrogates, in the turn and in its last event."""
    engine.says(Stopped("half\x00 a \ud83d sen"))
    engine.advance()
    assert engine.turn.output_text == "half\ufffd a \ufffd sen"
    assert engine.store.events[-1].data["output_text"] == engine.turn.output_text


def test_backoff_ends_when_told_to_stop(engine: Engine) -> None:
    """A visit that waits before another try gives up too."""
    engine.stop.told = True
    engine.says(SILENT)
    engine.advance()
    assert engine.turn.status is TurnStatus.CANCELLED


# --- bugs


@pytest.mark.parametrize("bug", [RuntimeError, TimeoutError])
def test_bug_ends_the_turn_as_failed(engine: Engine, caplog: pytest.LogCaptureFixture, bug: type[Exception]) -> None:
    """It is not repeated for ever; the log has the traceback, which no client reads.

    A timeout that a model's client fails to catch counts as a bug too: it does not mean that the turn's time has ended.
    """
    engine.says(bug("secret path /etc/x"))
    engine.advance()
    assert (engine.turn.status, engine.turn.stop_reason) == (TurnStatus.FAILED, StopReason.INTERNAL)
    assert engine.turn.error is not None
    assert "secret" not in engine.turn.error["message"]
    assert "secret path" in caplog.text
    assert engine.event_types[-1] == "turn.failed"


def test_bug_beside_open_calls_gives_each_a_result(engine: Engine) -> None:
    """The gate is closed first: nothing starts after the end, and no call stays open."""
    engine.dispatched("look", "look")
    engine.seen_gate.before["settle"].append(raising(RuntimeError("bug")))
    engine.advance()
    assert engine.turn.status is TurnStatus.FAILED
    assert engine.contents == ["denied: not_run: the turn failed"] * 2
    assert engine.run() is Canvas.CONTINUES
    assert engine.ran == []
    assert engine.sent.stops == 1


def test_bug_beside_reads_that_ran_tells_what_they_came_to(engine: Engine) -> None:
    """Only reads that did not run are reported as not run."""
    engine.dispatched("look", "look", "look")
    engine.run("0.0")
    engine.seen_gate.before["settle"].append(raising(RuntimeError("bug")))
    engine.advance()
    assert engine.turn.stop_reason is StopReason.INTERNAL
    assert engine.contents == ["look done", *["denied: not_run: the turn failed"] * 2]


def test_bug_beside_open_reads_closes_each_as_it_is_reported(engine: Engine) -> None:
    """A read whose message arrives after the reports does not start, so reporting it as not run was right."""
    engine.dispatched("look")
    engine.seen_gate.before["settle"].append(raising(RuntimeError("bug")))
    engine.seen_gate.after["settle"].append(engine.run)
    engine.advance()
    assert engine.turn.stop_reason is StopReason.INTERNAL
    assert (engine.ran, engine.contents) == ([], ["denied: not_run: the turn failed"])


def test_gate_that_cannot_be_read_keeps_no_turn_from_its_end(engine: Engine) -> None:
    """The gate's content may be the very cause of the failure."""
    engine.dispatched("look")
    engine.run()
    engine.seen_gate.before["settle"] += [raising(RuntimeError("bug")), raising(RuntimeError("bug"))]
    engine.advance()
    assert engine.turn.stop_reason is StopReason.INTERNAL
    assert engine.contents == ["worker_lost: the process running look was lost once"]


def test_result_that_cannot_be_read_keeps_no_turn_from_its_end(engine: Engine) -> None:
    """A later version may have written it, in a shape that this one does not know."""
    engine.dispatched("look")
    run = engine.alive()
    engine.gate.admit(run, 60_000)
    assert engine.gate.complete(run, '{"kind": "ToolOutcomeOfTheFuture"}')
    engine.advance()
    assert engine.turn.stop_reason is StopReason.INTERNAL
    assert engine.contents == ["worker_lost: the process running look was lost once"]


def test_bug_while_sending_is_left_to_the_next_look(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """The turn was already released, so a look-in sends again."""
    engine.seen_sent.before["chain"].append(raising(RuntimeError("bug")))
    engine.dispatched("look")
    assert engine.turn.status is TurnStatus.RUNNING
    assert "could not carry out its own decision" in caplog.text
    engine.clock.now_s += TIMING.look_s
    engine.advance()
    assert engine.sent.chains == [["0.0"]]


# --- stopping


def test_look_at_a_held_cancelled_turn_tells_the_holder_once(engine: Engine) -> None:
    """The first look broadcasts the stop; looks that follow from a stop do not, or there would be a storm."""
    stops: list[int] = []

    def cancel() -> ModelReply:
        engine.store.cancel(TURN_ID)
        engine.advance()
        stops.append(engine.sent.stops)
        engine.coordinator.advance(TURN_ID, was_told=True)
        stops.append(engine.sent.stops)
        return answers("too late")

    engine.says(cancel)
    engine.advance()
    assert stops == [1, 1]
    assert engine.turn.status is TurnStatus.CANCELLED


def test_look_at_a_held_turn_tells_nobody(engine: Engine) -> None:
    """Without a cancel, only the nudge is counted."""

    def nudge() -> ModelReply:
        engine.advance()
        return asks("look")

    engine.says(nudge)
    engine.advance()
    assert (engine.sent.stops, engine.sent.advances) == (0, 1)


def test_cancel_stops_what_runs(engine: Engine) -> None:
    """The turn ends, and workers are told to stop its calls."""
    engine.dispatched("look", "look")
    engine.store.cancel(TURN_ID)
    engine.advance()
    assert engine.turn.status is TurnStatus.CANCELLED
    assert engine.sent.stops == 1


def test_bug_in_the_look_at_a_stopped_turn_is_logged(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """That look runs on a separate thread, whose result nobody reads."""
    engine.seen_store.before["transact"] += [raising(KeyError("secret path"))] * 2
    look_at_stopped(engine.coordinator, TURN_ID)
    assert "could not open" in caplog.text
    assert f"turn {TURN_ID} not looked at" in caplog.text
    engine.seen_store.before["transact"].append(raising(TransientError("no answer")))
    look_at_stopped(engine.coordinator, TURN_ID)
    assert "the reconciler will see to it: TransientError('no answer')" in caplog.text


def test_stopped_coordinator_drives_nothing(engine: Engine) -> None:
    """If another visit claimed the turn meanwhile, the gate and the journal know its higher fence."""
    engine.seen_gate.before["raise_fence"].append(lambda: engine.gate.raise_fence(TURN_ID, 99))
    engine.advance()
    assert engine.model.requests == []
    assert engine.turn.owner == "visit-1"


def test_unknown_effects_run_alone() -> None:
    """Calls of a tool without a declared effect are sequential."""
    engine = Engine(mystery=None, look=Effect.READ_ONLY)
    engine.dispatched("look", "mystery", "look")
    assert engine.sent.chains == [["0.0"]]
    engine.run()
    engine.advance()
    assert engine.sent.chains[1:] == [["0.1"]]


def test_read_of_which_nothing_is_known_does_not_run_before_the_end_is_committed(engine: Engine) -> None:
    """The gate that could not be read is closed first."""
    engine.dispatched("look")

    def bug() -> None:
        engine.seen_store.before["transact"].append(engine.run)
        raise RuntimeError("bug")

    engine.seen_gate.before["settle"] += [raising(RuntimeError("bug")), bug]
    engine.advance()
    assert engine.contents == ["worker_lost: the process running look was lost once"]
    assert engine.ran == []
