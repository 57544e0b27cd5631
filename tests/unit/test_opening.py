"""The first commit of a visit: what may be decided together with the claim, and what must wait for the gate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness_worker.core.budget import BudgetLimits, Usage
from harness_worker.core.decisions import Decision
from harness_worker.core.opening import Opened, open_visit
from harness_worker.core.progress import AskModel, Dispatch, Finished
from harness_worker.core.records import Call, CallStatus, Turn
from harness_worker.core.visits import Held
from harness_worker.ports import ignore
from harness_worker.wire import TurnStatus
from tests.unit.builders import (
    NOW,
    OWNER,
    TIMING,
    a_call,
    a_held_turn,
    a_turn,
    a_write,
    ended,
    event_types,
    pending,
    running,
    snapshot,
)

RELEASED = a_turn(status=TurnStatus.RUNNING, started_at=NOW, fence=3, step=1)


def opened(*calls: Call, turn: Turn = RELEASED, now: float = NOW) -> tuple[Opened, Decision[Opened | Held | None]]:
    """The visit that is granted, and the whole decision."""
    decision = open_visit(snapshot(turn, *calls, now=now), owner=OWNER, timing=TIMING, tools_of=ignore)
    assert isinstance(decision.result, Opened)
    return decision.result, decision


def test_refused_claim_opens_nothing() -> None:
    """A held turn counts the nudge, a finished one nothing."""
    held = open_visit(snapshot(a_held_turn()), owner="other", timing=TIMING, tools_of=ignore)
    assert held.result == Held(stop=False)
    assert held.turn is not None
    assert held.turn.wakes == 1
    over = open_visit(snapshot(a_turn(status=TurnStatus.COMPLETED)), owner="other", timing=TIMING, tools_of=ignore)
    assert (over.result, over.turn) == (None, None)


def test_first_visit_asks_the_model() -> None:
    """Nothing to collect: the claim is the whole commit."""
    visit, decision = opened(turn=a_turn())
    assert isinstance(visit.after, AskModel)
    assert decision.turn == visit.visit.turn
    assert event_types(decision) == ["turn.started", "step.started"]


def test_collected_step_is_not_collected_again() -> None:
    """A visit that takes over from one that died while it asked the model."""
    visit, decision = opened(replace(ended(a_call()), collected=True))
    assert isinstance(visit.after, AskModel)
    assert (decision.calls, decision.messages) == ((), ())


def test_ended_writes_are_collected_with_the_claim() -> None:
    """SQL alone decides: results, the next step and the claim stand in one commit, and the turn stays held."""
    visit, decision = opened(ended(a_write(0)), ended(a_write(1)))
    assert isinstance(visit.after, AskModel)
    assert len(decision.messages) == 1
    assert decision.turn is not None
    assert (decision.turn.owner, decision.turn.fence) == (OWNER, 4)
    assert visit.after.turn == decision.turn
    assert event_types(decision) == ["step.completed", "step.started"]


def test_running_write_is_waited_for_with_the_claim() -> None:
    """The turn is claimed and let go in one commit."""
    visit, decision = opened(running(a_write(0)), pending(a_write(1)))
    assert isinstance(visit.after, Dispatch)
    assert visit.after.calls == ()
    assert decision.turn is not None
    assert (decision.turn.owner, decision.turn.fence, decision.turn.looks) == (None, 4, 1)


def test_waiting_chain_is_sent_again_with_the_claim() -> None:
    """A write needs no gate to be refused after the end."""
    visit, _ = opened(pending(a_write(0)))
    assert isinstance(visit.after, Dispatch)
    assert [call.position for call in visit.after.calls] == [0]


def test_reads_are_not_dispatched_before_the_gate_was_raised() -> None:
    """Only the claim is committed: the turn is still held when the gate is asked."""
    visit, decision = opened(ended(a_write(0)), a_call(1, wave=1))
    assert visit.after is None
    assert decision.calls == ()
    assert decision.turn is not None
    assert decision.turn.owner == OWNER


MUST_STOP = pytest.mark.parametrize(
    "turn", [replace(RELEASED, cancel_requested=True), replace(RELEASED, deadline_at=NOW - 1)]
)


@MUST_STOP
def test_turn_with_open_reads_that_must_stop_waits_for_its_gate_to_be_closed(turn: Turn) -> None:
    """No read may be accepted between the closing and the end."""
    visit, decision = opened(pending(a_call(0)), turn=turn)
    assert visit.after is None
    assert decision.calls == ()


@MUST_STOP
@pytest.mark.parametrize("calls", [(), (running(a_write(0)), pending(a_write(1))), (ended(a_call(0)), a_call(1))])
def test_turn_without_open_reads_that_must_stop_ends_with_the_claim(turn: Turn, calls: tuple[Call, ...]) -> None:
    """SQL alone refuses what a write does late, so the gate need not be asked; each call has its result."""
    visit, decision = opened(*calls, turn=turn)
    assert isinstance(visit.after, Finished)
    assert decision.turn is not None
    assert decision.turn.status.is_final
    assert sum(len(message.content) for message in decision.messages) == len(calls)


def test_open_reads_wait_for_the_gates_word() -> None:
    """Their outcomes are not SQL's to decide."""
    visit, decision = opened(pending(a_call(0)))
    assert visit.after is None
    assert decision.calls == ()


def test_turn_out_of_budget_ends_with_the_claim() -> None:
    """No step is left, and nothing is open."""
    turn = replace(RELEASED, budget=BudgetLimits(max_steps=1), used=Usage(steps=1))
    visit, decision = opened(ended(a_write(0)), turn=turn)
    assert isinstance(visit.after, Finished)
    assert decision.turn is not None
    assert decision.turn.status is TurnStatus.INCOMPLETE
    assert all(call.status is CallStatus.ENDED and call.collected for call in decision.calls)
    again, _ = opened(replace(ended(a_write(0)), collected=True), turn=turn)
    assert isinstance(again.after, Finished)


def test_turn_without_steps_ends_with_its_first_claim() -> None:
    """Nobody is asked, and no step is told."""
    visit, decision = opened(turn=a_turn(budget=BudgetLimits(max_steps=0)))
    assert isinstance(visit.after, Finished)
    assert event_types(decision) == ["turn.started", "turn.incomplete"]


def test_takeover_is_told_before_what_it_collects() -> None:
    """Events are in the order of what happened."""
    dead = a_held_turn(step=1, lease_until=NOW - 1)
    _, decision = opened(ended(a_write(0)), turn=dead)
    assert event_types(decision) == ["turn.redelivered", "step.completed", "step.started"]
