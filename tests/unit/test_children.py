"""Calls of agents: how their turns are created, and how they end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness_worker.core.budget import BudgetLimits, Usage
from harness_worker.core.children import awaited_by, take_ended_children
from harness_worker.core.collect import collect
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.delegating import children_of
from harness_worker.core.doubt import is_doubt
from harness_worker.core.opening import Opened, open_visit
from harness_worker.core.outcomes import DenialReason, ToolDenied, ToolExecutionResult, content_of
from harness_worker.core.progress import Dispatch, Finished, abandon
from harness_worker.core.recall import Recall
from harness_worker.core.records import Call, CallStatus, Park, Turn
from harness_worker.core.registration.delegation import Delegation
from harness_worker.core.reply_commit import give_up, plan
from harness_worker.core.tracing.journal import Journal
from harness_worker.core.tracing.spans import trace_of
from harness_worker.core.tracing.trace import call_span_id, trace_id_of
from harness_worker.ports import ignore
from harness_worker.turn.sending import Sending
from harness_worker.wire import QUEUE_LOOK_S, StopReason, TurnStatus, child_turn_id
from tests.unit.builders import (
    DEADLINE,
    NOW,
    TIMING,
    a_call,
    a_child,
    a_held_turn,
    a_question,
    a_turn,
    a_visit,
    a_write,
    asked,
    event_types,
    parked,
    running,
    said,
)
from tests.unit.engine_kit import Engine

KEPT_S = 15.0
"""What a turn of a minute keeps for itself."""


def over(position: int = 0, **changes: Any) -> Turn:  # noqa: ANN401 - any field's value
    """That turn, completed."""
    done = {"status": TurnStatus.COMPLETED, "output_text": "helped", "finished_at": NOW + 3.0, "wake_at": None}
    return a_child(position, **{**done, **changes})


def family(turn: Turn, *calls: Call, children: tuple[Turn, ...] = (), now: float = NOW) -> Snapshot:
    """A turn with its calls and their turns."""
    return Snapshot(now=now, turn=turn, calls=calls, children=children)


def collected(*calls: Call, children: tuple[Turn, ...], **turn: Any) -> Decision[Any]:  # noqa: ANN401 - any field
    """What a visit commits for them."""
    held = a_held_turn(step=1, **turn)
    return collect(family(held, *calls, children=children), visit=a_visit(held, *calls), reports={})


# --- birth


def test_calls_of_agents_are_sent_with_the_turns_that_they_are() -> None:
    """One commit sends consecutive calls of agents with their turns, and no other call beside them."""
    turn = a_held_turn(metadata={"script": "s"}, parallel=None)
    calls = (a_question(0), a_question(1), a_write(2, wave=1))
    decision = plan(family(turn), visit=a_visit(turn), said=said(*calls))
    assert isinstance(decision.result, Dispatch)
    assert [call.call_id for call in decision.result.calls] == ["0.0", "0.1"]
    sent = [call for call in decision.calls if call.is_delegated]
    assert [(call.status, call.lease_until, call.attempt) for call in sent] == [(CallStatus.RUNNING, None, 1)] * 2
    first, second = decision.children
    assert (first.id, second.id) == (child_turn_id("turn", "0.0"), child_turn_id("turn", "0.1"))
    assert (first.parent_id, first.parent_call_id, first.agent, first.input) == ("turn", "0.0", "helper", "question 0")
    assert (first.tenant, first.priority, first.metadata) == (turn.tenant, turn.priority, turn.metadata)
    assert (first.session_id, first.wake_at, first.status) == (first.id, NOW, TurnStatus.QUEUED)
    assert event_types(decision)[-3:] == ["wave.started", "subagent.started", "subagent.started"]
    assert decision.events[-1].data == {"call_id": "0.1", "turn_id": second.id, "agent": "helper"}


def test_children_share_what_is_left() -> None:
    """Each gets an equal part of the tokens and dollars left, and all time but what the turn itself needs."""
    spent = {"used": Usage(output_tokens=300, dollars=0.2), "delegated": Usage(output_tokens=100, dollars=0.2)}
    turn = a_held_turn(budget=BudgetLimits(max_tokens=1_000, max_dollars=1.0), **spent)
    two = children_of(turn, [a_question(0), a_question(1)], now=NOW)
    assert [child.budget.max_tokens for child in two] == [300, 300]
    assert [round(child.budget.max_dollars, 6) for child in two] == [0.3, 0.3]
    assert [child.deadline_at for child in two] == [DEADLINE - KEPT_S] * 2
    (late,) = children_of(turn, [a_question()], now=DEADLINE - 8.0)
    assert late.budget.timeout_s == 4.0


def test_child_has_no_more_than_its_agent() -> None:
    """Its agent's budget is a cap, whatever the asking turn has left."""
    modest = Delegation(agent="helper", budget=BudgetLimits(max_steps=2, max_dollars=0.1, timeout_s=5.0))
    (child,) = children_of(a_held_turn(), [a_question(delegation=modest)], now=NOW)
    assert child.budget == modest.budget


def test_agent_is_not_asked_when_nothing_is_left() -> None:
    """The turn could not ask its own model again either; other tools may still run."""
    turn = a_held_turn(delegated=Usage(dollars=1.0))
    decision = plan(family(turn), visit=a_visit(turn), said=said(a_question(0), a_write(1, wave=1)))
    assert isinstance(decision.result, Dispatch)
    assert [call.call_id for call in decision.result.calls] == ["0.1"]
    (denied,) = [call.outcome for call in decision.calls if isinstance(call.outcome, ToolDenied)]
    assert denied.reason is DenialReason.BUDGET
    assert decision.children == ()


def test_childs_trace_stands_below_its_call() -> None:
    """It belongs to the trace of the asking turn, or of that turn's caller."""
    parent = a_held_turn(status=TurnStatus.COMPLETED, finished_at=NOW + 5.0)
    child = over()
    spans = trace_of(Journal(turn=child, calls=(), events=()))
    assert (spans[0].trace_id, spans[0].parent_id) == (trace_id_of("turn"), call_span_id("turn", "0.0", 1))
    calls = (replace(asked(), status=CallStatus.ENDED, started_at=NOW, finished_at=NOW),)
    below = trace_of(Journal(turn=parent, calls=calls, events=()))
    assert (below[-1].trace_id, below[-1].span_id) == (spans[0].trace_id, spans[0].parent_id)
    callers = (None, f"00-{'a' * 32}-{'b' * 16}-00", f"00-{'a' * 32}-{'b' * 16}-01")
    asking = [replace(parent, traceparent=caller) for caller in callers]
    told = [child.traceparent or "" for turn in asking for child in children_of(turn, [a_question()], now=NOW)]
    assert all(trace.startswith(f"00-{'a' * 32}-") for trace in told[1:])
    assert [trace[-2:] for trace in told] == ["01", "00", "01"], "without a caller, traces are kept"


# --- end


def test_turn_waits_for_children_that_go_on() -> None:
    """Nobody holds the turn, nothing is sent, and it is looked at again soon."""
    decision = collected(asked(0), asked(1), children=(over(0), a_child(1)))
    assert isinstance(decision.result, Dispatch)
    assert decision.result.calls == ()
    turn = decision.turn
    assert turn is not None
    assert (turn.owner, turn.wake_at, turn.parked_at) == (None, NOW + TIMING.look_s * 2, None)
    assert [(call.call_id, call.status) for call in decision.calls] == [("0.0", CallStatus.ENDED)]
    assert event_types(decision) == ["subagent.finished", "tool.completed"]


def test_answer_of_a_child_is_the_calls_result() -> None:
    """The call has the child's own times."""
    decision = collected(asked(), children=(over(),))
    (call,) = decision.calls
    assert (content_of(call.outcome), call.started_at, call.finished_at) == ("helped", NOW + 1.0, NOW + 3.0)  # type: ignore[arg-type]
    assert isinstance(call.outcome, ToolExecutionResult)
    assert call.outcome.elapsed_ms == 2_000.0
    assert decision.messages[0].content[0]["content"] == "helped"
    assert decision.events[0].data == {"call_id": "0.0", "turn_id": child_turn_id("turn", "0.0"), "status": "completed"}


@pytest.mark.parametrize(
    ("child", "content"),
    [
        (
            over(status=TurnStatus.INCOMPLETE, stop_reason=StopReason.MAX_TOKENS),
            "[incomplete: max_tokens] helped",
        ),
        (
            over(status=TurnStatus.FAILED, error={"code": "model_error", "message": "refused"}),
            "helper failed: model_error: refused",
        ),
        (
            over(status=TurnStatus.CANCELLED, used=Usage(tool_calls=1)),
            "cancelled: helper was stopped; what it had done by then stands",
        ),
        (None, "its turn is not there any more"),
    ],
)
def test_child_that_gives_no_answer_is_told_as_it_ended(child: Turn | None, content: str) -> None:
    """An incomplete child's text is a result; other ends are errors, after which the model may ask again."""
    decision = collected(asked(), children=() if child is None else (child,))
    (call,) = decision.calls
    assert call.outcome is not None
    assert content_of(call.outcome) == content
    assert not is_doubt(call)
    assert decision.turn is not None
    assert decision.turn.recall.blocked == {}


def test_child_that_was_never_begun_took_no_time() -> None:
    """It was stopped, or its time was over, while it waited in its queue."""
    decision = collected(asked(), children=(over(status=TurnStatus.CANCELLED, started_at=None),))
    assert decision.calls[0].started_at is None
    (told,) = [event.data for event in decision.events if event.type == "tool.completed"]
    assert (told["outcome"], told["elapsed_ms"]) == ("ToolFailure", 0.0)


@pytest.mark.parametrize("status", [TurnStatus.INCOMPLETE, TurnStatus.FAILED, TurnStatus.CANCELLED])
def test_child_that_ends_with_a_write_in_doubt_is_a_doubt_itself(status: TurnStatus) -> None:
    """Later calls do not run, and the asking turn has the doubt too, so that it reaches every level."""
    left = over(status=status, stop_reason=StopReason.DEADLINE, recall=Recall(doubtful={"charge": "key"}))
    waits = collected(asked(0), asked(1), a_write(2, wave=1), children=(left, a_child(1)))
    assert [(call.call_id, is_doubt(call)) for call in waits.calls] == [("0.0", True)]
    decision = collected(*waits.calls, asked(1), a_write(2, wave=1), children=(left, over(1)))
    first, _, later = decision.calls
    assert (first.call_id, is_doubt(first), first.finished_at) == ("0.0", True, NOW + 3.0)
    said = f"outcome_unknown: helper was asked and ended ({status}: deadline), and something it did may or may not "
    assert first.outcome is not None
    assert content_of(first.outcome).startswith(said)
    assert isinstance(later.outcome, ToolDenied)
    assert (later.call_id, later.outcome.reason) == ("0.2", DenialReason.NOT_RUN)
    last = collected(asked(0), children=(left,)).turn
    assert last is not None
    assert list(last.recall.doubtful.values()) == [asked(0).idempotency_key]


def test_answer_of_a_child_that_knew_of_its_doubt_is_no_doubt() -> None:
    """The child's model read of the doubt before it answered."""
    decision = collected(asked(), children=(over(recall=Recall(doubtful={"charge": "key"})),))
    assert [content_of(call.outcome) for call in decision.calls if call.outcome] == ["helped"]


def test_turn_is_charged_for_its_children_once() -> None:
    """Tokens and dollars are charged, those of grandchildren too; steps and calls count in each turn alone."""
    spent = Usage(output_tokens=10, dollars=0.5, steps=3, tool_calls=2, reflections=1)
    child = over(used=spent, delegated=Usage(output_tokens=5))
    decision = collected(asked(0), asked(1), children=(child, a_child(1, used=spent)))
    assert decision.turn is not None
    assert decision.turn.delegated == Usage(output_tokens=15, dollars=0.5)
    left = tuple(call for call in (asked(1),))
    again = take_ended_children(family(decision.turn, *left, children=(a_child(1, used=spent),)), decision.turn, left)
    assert again.turn.delegated == decision.turn.delegated


def test_what_children_spent_ends_a_turn_that_has_no_more() -> None:
    """The turn's model is not asked again."""
    decision = collected(asked(), children=(over(used=Usage(dollars=1.0)),), used=Usage(steps=1))
    assert decision.turn is not None
    assert (decision.turn.status, decision.turn.stop_reason) == (TurnStatus.INCOMPLETE, StopReason.BUDGET)


# --- cut short


@pytest.mark.parametrize("cause", ["cancelled", "deadline", "failed", "abandoned"])
def test_turn_that_ends_before_its_children_does_not_know_what_they_did(cause: str) -> None:
    """Ended children have their outcomes; any other may just be starting, so its effect is unknown."""
    turn = a_held_turn(step=1, cancel_requested=cause == "cancelled")
    calls = (asked(0), asked(1), asked(2), a_question(3))
    children = (over(0), a_child(1, used=Usage(output_tokens=7)), a_child(2, started_at=None))
    now = DEADLINE + 1.0 if cause == "deadline" else NOW
    snapshot = family(turn, *calls, children=children, now=now)
    match cause:
        case "failed":
            decision: Decision[Any] = give_up(snapshot, reason=StopReason.INTERNAL, message="bug")
        case "abandoned":
            decision = abandon(snapshot)
        case _:
            decision = collect(snapshot, visit=a_visit(turn, *calls, now=now), reports={})
    assert isinstance(decision.result, Finished)
    assert [is_doubt(call) for call in decision.calls] == [False, True, True, False]
    contents = [content_of(call.outcome) for call in decision.calls if call.outcome is not None]
    assert contents[0] == "helped"
    assert contents[1].startswith("outcome_unknown: helper was asked and the turn")
    assert contents[3].startswith("denied: not_run")
    assert decision.turn is not None
    assert decision.turn.delegated == Usage(output_tokens=7)
    assert event_types(decision).count("subagent.finished") == 1
    assert [call.started_at for call in decision.calls] == [NOW + 1.0, NOW + 1.0, None, None]


def sending_of(engine: Engine, turn: Turn) -> Sending:
    """What follows the last commit of a visit to that turn."""
    return Sending(
        store=engine.store, gate=engine.gate, dispatcher=engine.sent, finalizer=engine.finalizer, visit=a_visit(turn)
    )


def test_children_are_looked_at_as_soon_as_they_exist() -> None:
    """They begin at once, and not when somebody looks in."""
    engine, turn = Engine(), a_held_turn()
    calls = (asked(0), asked(1))
    sending_of(engine, turn).dispatch(Dispatch(turn=turn, calls=calls, nudge=False, remaining_s=10.0))
    assert engine.sent.advanced == [(child_turn_id(turn.id, call.call_id), turn.priority) for call in calls]


def test_children_of_a_turn_that_ends_are_looked_at() -> None:
    """So that they stop at once, and not when somebody looks in."""
    engine, turn = Engine(), a_held_turn()
    sending_of(engine, turn).finish(Finished(followed=False, left=(asked(0), running(a_write(1)))))
    assert engine.sent.advanced == [(child_turn_id(turn.id, "0.0"), turn.priority)]


def test_parent_of_a_turn_that_ends_is_looked_at() -> None:
    """It goes on at once, and not when somebody looks in."""
    engine, child = Engine(), a_child()
    sending_of(engine, child).finish(Finished(followed=False, left=()))
    assert engine.sent.advanced == [(child.parent_id, child.priority)]


# --- time


def opened(*calls: Call, children: tuple[Turn, ...], now: float) -> Decision[Any]:
    """What a visit to a free turn decides."""
    turn = a_turn(status=TurnStatus.RUNNING, step=1, started_at=NOW)
    return open_visit(family(turn, *calls, children=children, now=now), owner="v", timing=TIMING, tools_of=ignore)


def test_turn_is_not_charged_for_what_its_child_waits_for_people() -> None:
    """However often it is looked at, it counts as parked itself, and is looked at rarely."""
    decision = opened(asked(), children=(parked(),), now=NOW + 1_010.0)
    assert isinstance(decision.result, Opened)
    turn = decision.turn
    assert turn is not None
    assert (turn.status, turn.deadline_at) == (TurnStatus.RUNNING, DEADLINE + 1_000.0)
    assert (turn.parked_at, turn.wake_at) == (NOW + 1_010.0, NOW + 1_010.0 + QUEUE_LOOK_S)
    later = replace(parked(), status=TurnStatus.RUNNING, parked_at=None, deadline_at=parked().deadline_at + 1_500.0)
    again = open_visit(
        family(turn, asked(), children=(later,), now=NOW + 1_511.0), owner="w", timing=TIMING, tools_of=ignore
    ).turn
    assert again is not None
    assert (again.deadline_at, again.parked_at) == (DEADLINE + 1_500.0, None)


def test_turn_whose_childs_row_is_gone_is_claimed() -> None:
    """It has the time that it was given, because nobody knows of a wait; its call ends."""
    decision = opened(asked(), children=(), now=NOW + 30.0)
    assert isinstance(decision.result, Opened)
    assert decision.turn is not None
    assert (decision.turn.parked_at, decision.turn.deadline_at) == (None, DEADLINE)
    assert [call.status for call in decision.calls] == [CallStatus.ENDED]


def test_turn_is_not_parked_while_another_child_works() -> None:
    """Its deadline is still put off by the longest wait of a child."""
    decision = opened(asked(0), asked(1), children=(parked(0), a_child(1)), now=NOW + 30.0)
    assert decision.turn is not None
    assert (decision.turn.parked_at, decision.turn.deadline_at) == (None, DEADLINE + 20.0)


def test_reads_beside_agents_are_sent_by_themselves() -> None:
    """A wave has either reads or calls of agents."""
    turn = a_held_turn()
    decision = plan(family(turn), visit=a_visit(turn), said=said(a_question(0), a_call(1, wave=1)))
    assert isinstance(decision.result, Dispatch)
    assert [call.call_id for call in decision.result.calls] == ["0.0"]


# --- people


def waiting(position: int = 0, **changes: Any) -> Turn:  # noqa: ANN401 - any field's value
    """A child that itself waits for a person."""
    return a_child(position, status=TurnStatus.REQUIRES_ACTION, parked_at=NOW, **{"fence": 3, **changes})


def test_wait_of_a_child_is_told_once() -> None:
    """A new wait has another fence, since the child was visited in between, and is reported again."""
    first = collected(asked(0), asked(1), children=(waiting(0), a_child(1)))
    assert [event.type for event in first.events] == ["subagent.requires_action"]
    assert first.events[0].data == {"call_id": "0.0", "turn_id": child_turn_id("turn", "0.0")}
    assert first.turn is not None
    known = first.turn.parked_below
    assert known == (Park(turn_id=child_turn_id("turn", "0.0"), fence=3),)
    again = collected(asked(0), asked(1), children=(waiting(0), a_child(1)), parked_below=known)
    anew = collected(asked(0), asked(1), children=(waiting(0, fence=4), a_child(1)), parked_below=known)
    assert (event_types(again), event_types(anew)) == ([], ["subagent.requires_action"])


def test_wait_is_forgotten_once_it_is_answered() -> None:
    """A child that runs again, or has ended, is no longer listed as waiting."""
    known = (Park(turn_id=child_turn_id("turn", "0.0"), fence=3),)
    answered = collected(asked(0), children=(a_child(0, fence=3, parked_at=NOW),), parked_below=known)
    assert answered.turn is not None
    assert (answered.turn.parked_below, event_types(answered)) == ((), [])
    ended = collected(asked(0), asked(1), children=(over(0), a_child(1)), parked_below=known)
    assert ended.turn is not None
    assert (ended.turn.parked_below, event_types(ended)) == ((), ["subagent.finished", "tool.completed"])


def test_waits_rise_from_turn_to_turn() -> None:
    """Waits that a child reports of turns below it are reported here too, if they still last."""
    x, y = Park(turn_id="x", fence=1), Park(turn_id="y", fence=2)
    below = (x, replace(x, turn_id="over"), y, replace(x, turn_id="z"))
    held, calls = a_held_turn(), (asked(0), asked(1))
    snapshot = family(held, *calls, children=(waiting(1), a_child(0, parked_below=below)))
    snapshot = replace(snapshot, parked=frozenset({x, y, Park(turn_id="z", fence=3)}))
    decision = collect(snapshot, visit=a_visit(held, *calls), reports={})
    told = [(event.data["call_id"], event.data["turn_id"]) for event in decision.events]
    assert told == [("0.0", "x"), ("0.0", "y"), ("0.1", child_turn_id("turn", "0.1"))]


def test_new_wait_below_has_the_parent_looked_at() -> None:
    """So the report reaches the parent, even while the turn in between does something else."""
    x, y = Park(turn_id="x", fence=1), Park(turn_id="y", fence=1)
    before = a_held_turn(parent_id="p", parked_below=(x,))
    told = [awaited_by(before, replace(before, parked_below=parks)) for parks in ((x,), (y,), (y, x), ())]
    assert told == [None, "p", "p", None]


def test_turn_that_ends_waits_for_nobody() -> None:
    """Its children are told to stop."""
    known = (Park(turn_id=child_turn_id("turn", "0.0"), fence=3),)
    held = a_held_turn(parked_below=known)
    stopped = abandon(family(held, asked(0), children=(waiting(0, fence=4),)))
    assert stopped.turn is not None
    assert (stopped.turn.parked_below, "subagent.requires_action" in event_types(stopped)) == ((), False)
