"""A sequential call starts once and ends once, and every case of doubt stops the chain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness_worker.core.decisions import Decision
from harness_worker.core.doubt import not_run, too_late, unknown
from harness_worker.core.outcomes import content_of
from harness_worker.core.records import Call, CallStatus, Turn
from harness_worker.core.writes import Go, Started, hand_back, hand_in, late, start_write
from harness_worker.wire import TurnStatus
from tests.unit.builders import (
    DEADLINE,
    NOW,
    RUNNER,
    TIMING,
    a_turn,
    a_write,
    call_of,
    ended,
    event_types,
    failed,
    ok,
    pending,
    running,
    snapshot,
)

WAITING = a_turn(status=TurnStatus.RUNNING, wake_at=NOW + 2)


def start(
    *calls: Call,
    turn: Turn = WAITING,
    call_id: str = "0.0",
    tool: str | None = None,
    attempt: int = 1,
    now: float = NOW,
) -> Decision[Started]:
    """Ask to start a call, in a process with another name."""
    asked = snapshot(turn, *calls, now=now)
    tool = tool or f"tool{call_id[-1]}"
    return start_write(asked, call_id=call_id, tool=tool, attempt=attempt, runner="host/2", timing=TIMING)


def end(call: Call, outcome: Any, *more: Call, turn: Turn = WAITING, **given: Any) -> Decision[Go]:  # noqa: ANN401
    """Hand in an outcome, by default from the runner that has the call."""
    named: dict[str, Any] = {"call_id": call.call_id, "attempt": call.attempt, "runner": RUNNER, **given}
    decision = hand_in(snapshot(turn, call, *more, now=NOW + 3), outcome=outcome, **named)
    return decision.with_result(decision.result.go)


# --- starting


def test_pending_write_starts() -> None:
    """It runs in this process under a lease; its time limit counts from now, not from dispatch."""
    decision = start(pending(a_write()), now=NOW + 30)
    call = decision.result.call
    assert call is not None
    assert (decision.result.go, decision.result.remaining_s) == (Go.RUN, 10.0)
    assert (call.status, call.runner, call.worker, call.started_at) == (
        CallStatus.RUNNING,
        "host/2",
        "host/2",
        NOW + 30,
    )
    assert (call.deadline_at, call.lease_until) == (NOW + 40, NOW + 30 + TIMING.lease_ttl_s)
    assert decision.calls == (call,)
    assert event_types(decision) == ["wave.started"]


def test_message_of_another_tool_starts_nothing() -> None:
    """After the journal was restored and the model asked anew, an old message must not run its tool."""
    assert start(pending(a_write()), tool="tool7") == Decision(result=Started(go=Go.IGNORE, turn=WAITING))


def test_write_that_starts_late_has_what_is_left_of_the_turn() -> None:
    """It may not run past the turn's deadline."""
    assert start(pending(a_write()), now=DEADLINE - 4).result.remaining_s == 4.0


@pytest.mark.parametrize(
    "turn", [a_turn(status=TurnStatus.COMPLETED), a_turn(cancel_requested=True, status=TurnStatus.RUNNING)]
)
def test_nothing_starts_for_a_finished_or_cancelled_turn(turn: Turn) -> None:
    """A late message changes nothing."""
    assert start(pending(a_write()), turn=turn) == Decision(result=Started(go=Go.IGNORE, turn=turn))


def test_unknown_and_planned_calls_are_ignored() -> None:
    """A call without a row, or not yet dispatched, does not start."""
    assert start().result.go is Go.IGNORE
    assert start(a_write()).result.go is Go.IGNORE


def test_message_of_another_attempt_is_ignored() -> None:
    """Only the current attempt runs."""
    assert start(pending(a_write(attempt=2)), attempt=1).result.go is Go.IGNORE
    assert start(pending(a_write(attempt=2)), attempt=2).result.go is Go.RUN


def test_ended_write_lets_the_chain_go_on() -> None:
    """A redelivered message of an ended call continues the chain, whether it succeeded, failed or came too late."""
    assert start(ended(a_write())).result.go is Go.PASS
    assert start(ended(a_write(), failed(a_write()))).result.go is Go.PASS
    assert start(ended(a_write(), too_late("0.0", "tool0"), started_at=None)).result.go is Go.PASS


def test_ended_write_in_doubt_stops_the_chain() -> None:
    """A call that never ran stops it too."""
    assert start(ended(a_write(), unknown(a_write(), "x"))).result.go is Go.IGNORE
    assert start(ended(a_write(), not_run(a_write(), "x"), started_at=None)).result.go is Go.IGNORE


@pytest.mark.parametrize("first", [pending(a_write(0)), running(a_write(0)), a_write(0)])
def test_write_waits_for_all_before_it(first: Call) -> None:
    """An earlier call of the message that is open, or in doubt, blocks it."""
    assert start(first, pending(a_write(1)), call_id="0.1").result.go is Go.IGNORE
    doubtful = ended(a_write(0), unknown(a_write(0), "x"))
    assert start(doubtful, pending(a_write(1)), call_id="0.1").result.go is Go.IGNORE


def test_write_does_not_wait_for_other_steps_or_later_calls() -> None:
    """Only earlier calls of its own message block it."""
    others = (pending(a_write(0, step=1)), pending(a_write(2)), ended(a_write(0), failed(a_write(0))))
    assert start(*others, pending(a_write(1)), call_id="0.1").result.go is Go.RUN


def test_write_past_its_deadline_asks_for_a_look() -> None:
    """The coordinator decides how it ends."""
    decision = start(pending(a_write()), now=DEADLINE + 1)
    assert decision.result.go is Go.WAKE
    assert decision.turn is not None
    assert (decision.turn.wakes, decision.turn.wake_at) == (1, DEADLINE + 1)
    assert decision.calls == ()


def test_twin_of_a_running_write_is_ignored() -> None:
    """While the first delivery runs, a second does nothing but have a coordinator look when the lease ends."""
    call = running(a_write(), lease_until=NOW + 1)
    decision = start(call)
    assert decision.result.go is Go.IGNORE
    assert decision.turn == replace(WAITING, wake_at=NOW + 1)
    asleep = replace(WAITING, wake_at=None)
    assert start(call, turn=asleep).turn == replace(asleep, wake_at=NOW + 1)


def test_twin_does_not_put_a_look_off() -> None:
    """A look that is due sooner stays."""
    assert start(running(a_write()), turn=replace(WAITING, wake_at=NOW + 1)).turn is None


@pytest.mark.parametrize("lease_until", [NOW, None])
def test_redelivered_safe_write_of_a_dead_process_runs_again(lease_until: float | None) -> None:
    """It runs as the next attempt, in this process."""
    decision = start(running(a_write(retry_safe=True), lease_until=lease_until))
    assert decision.result.go is Go.RUN
    assert decision.result.call is not None
    assert (decision.result.call.attempt, decision.result.call.runner) == (2, "host/2")
    assert event_types(decision) == []


def test_redelivered_unsafe_write_of_a_dead_process_is_in_doubt() -> None:
    """It is not run again, later calls do not run, and a coordinator is woken."""
    decision = start(running(a_write(0), lease_until=NOW), pending(a_write(1)))
    assert decision.result.go is Go.WAKE
    assert content_of(call_of(decision, 0).outcome or failed(a_write())).startswith("outcome_unknown: ")
    assert content_of(call_of(decision, 1).outcome or failed(a_write())).startswith("denied: not_run: ")
    assert decision.turn is not None
    assert decision.turn.wakes == 1


# --- ending


def test_write_hands_in_its_outcome() -> None:
    """It is stored, and the chain continues."""
    call = running(a_write())
    decision = end(call, ok(call))
    assert decision.result is Go.PASS
    assert (call_of(decision, 0).outcome, call_of(decision, 0).finished_at) == (ok(call), NOW + 3)
    assert decision.turn is None
    assert event_types(decision) == ["tool.completed", "wave.completed"]


def test_failed_write_does_not_stop_the_chain() -> None:
    """A failure is certain; only a doubt stops later writes."""
    call = running(a_write())
    decision = end(call, failed(call), pending(a_write(1)))
    assert decision.result is Go.PASS
    assert [changed.position for changed in decision.calls] == [0]


def test_write_in_doubt_ends_the_rest_and_wakes() -> None:
    """A tool that was cut off at its deadline reports the doubt itself."""
    call = running(a_write())
    decision = end(call, unknown(call, "did not end in time"), pending(a_write(1)))
    assert decision.result is Go.WAKE
    assert [changed.status for changed in decision.calls] == [CallStatus.ENDED, CallStatus.ENDED]
    assert decision.turn is not None
    assert (decision.turn.wakes, decision.turn.wake_at) == (1, NOW + 3)


def test_write_that_ends_has_its_successor_sent_soon_if_that_message_is_lost() -> None:
    """This holds however long it ran, and however rarely the turn was looked at by then."""
    decision = end(running(a_write()), ok(a_write()), pending(a_write(1)), turn=replace(WAITING, looks=9))
    assert decision.turn is not None
    assert decision.turn.looks == 0


def test_write_hands_in_twice_as_once() -> None:
    """If the commit's answer was lost, the process tries again, which changes nothing."""
    over = ended(running(a_write()))
    assert end(over, ok(over)) == Decision(result=Go.PASS)
    doubtful = ended(running(a_write()), unknown(a_write(), "x"))
    assert end(doubtful, unknown(a_write(), "x")) == Decision(result=Go.WAKE)


@pytest.mark.parametrize(
    ("call", "given"),
    [
        (running(a_write(attempt=2)), {"attempt": 1}),
        (running(a_write()), {"runner": "host/9"}),
        (pending(a_write()), {}),
        (ended(running(a_write()), failed(a_write())), {}),
        (ended(running(a_write())), {"runner": "host/9"}),
        (ended(running(a_write(attempt=2))), {"attempt": 1}),
        (running(a_write()), {"call_id": "7.7"}),
    ],
)
def test_late_outcome_changes_nothing(call: Call, given: dict[str, Any]) -> None:
    """An outcome of a run that was superseded is only an event, while the turn runs."""
    decision = end(call, ok(call), **given)
    assert (decision.result, decision.calls, decision.turn) == (Go.IGNORE, (), None)
    assert event_types(decision) == ["tool.late"]
    named = {"call_id": call.call_id, "attempt": call.attempt}
    assert decision.events[0].data == {name: given.get(name, value) for name, value in named.items()}


def test_outcome_after_the_end_is_not_even_an_event() -> None:
    """Nothing follows the terminal event."""
    over = a_turn(status=TurnStatus.CANCELLED)
    call = running(a_write())
    assert end(call, ok(call), turn=over) == Decision(result=Go.IGNORE)
    assert late(snapshot(over), call_id="0.0", attempt=1) == Decision(result=Go.IGNORE)


# --- handing back


def test_start_whose_body_was_not_entered_is_undone() -> None:
    """If the gate refused, the call waits again, with the turn's whole time, and the turn is looked at at once."""
    call, rarely = running(a_write()), replace(WAITING, looks=9)
    decision = hand_back(snapshot(rarely, call), call_id="0.0", attempt=1, runner=RUNNER)
    assert decision.turn == replace(rarely, looks=0, wake_at=NOW)
    (back,) = decision.calls
    assert (back.status, back.runner, back.lease_until, back.deadline_at) == (
        CallStatus.PENDING,
        None,
        None,
        DEADLINE,
    )


def test_start_that_is_undone_puts_no_look_off() -> None:
    """A look that was due before stays so."""
    overdue = replace(WAITING, wake_at=NOW - 1)
    decision = hand_back(snapshot(overdue, running(a_write())), call_id="0.0", attempt=1, runner=RUNNER)
    assert decision.turn == overdue


@pytest.mark.parametrize(
    "call", [None, ended(running(a_write())), running(a_write(), runner="host/9"), running(a_write(attempt=2))]
)
def test_only_ones_own_start_is_undone(call: Call | None) -> None:
    """If somebody else has decided meanwhile, nothing changes."""
    calls = () if call is None else (call,)
    nothing: Decision[None] = Decision(result=None)
    assert hand_back(snapshot(WAITING, *calls), call_id="0.0", attempt=1, runner=RUNNER) == nothing
