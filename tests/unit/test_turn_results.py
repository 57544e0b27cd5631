"""A turn as callers of the engine see it: each field of the HTTP API's Turn and Call, as attributes."""

from __future__ import annotations

from dataclasses import replace

from harness_worker.core.budget import BudgetLimits, Usage
from harness_worker.core.records import Approval, Message, TurnPreparation
from harness_worker.core.sources.citations import Citation, CitationKind
from harness_worker.turn.results import CallResult, TurnResult, turn_result
from harness_worker.wire import StopReason, Strategy, TurnStatus, child_turn_id, rfc3339
from tests.unit.builders import NOW, a_call, a_question, a_turn, a_write, ended, failed, running

BUDGET = BudgetLimits(max_steps=7)
CITED = (Citation(kind=CitationKind.LOCAL, id="a.md#1", title="A", source="a.md"),)
TURN = a_turn(
    status=TurnStatus.FAILED,
    stop_reason=StopReason.MODEL_ERROR,
    parent_id="above",
    parent_call_id="2.1",
    output_text="so far",
    citations=CITED,
    used=Usage(steps=2),
    delegated=Usage(tool_calls=3),
    budget=BUDGET,
    error={"code": "model_error", "message": "no"},
    decision=Strategy.DIRECT_ANSWER,
    metadata={"user": "ann"},
    started_at=NOW + 1,
    finished_at=NOW + 9,
    preparation=TurnPreparation(context=("known",), prefix_hash="p"),
)


def test_result_has_each_field_of_its_turn() -> None:
    """None is left out, and none stands for another."""
    assert turn_result(TURN, (), (Message(role="user", content="hello"),)) == TurnResult(
        id="turn",
        status=TurnStatus.FAILED,
        stop_reason=StopReason.MODEL_ERROR,
        agent="agent",
        session_id="session",
        parent={"turn_id": "above", "call_id": "2.1"},
        input="hello",
        output_text="so far",
        citations=CITED,
        usage=Usage(steps=2, tool_calls=3),
        budget=BUDGET,
        calls=(),
        required_actions=(),
        error={"code": "model_error", "message": "no"},
        decision=Strategy.DIRECT_ANSWER,
        metadata={"user": "ann"},
        created_at=rfc3339(NOW),
        started_at=rfc3339(NOW + 1),
        finished_at=rfc3339(NOW + 9),
        context=("known",),
        messages=({"role": "user", "content": "hello"},),
    )
    bare = turn_result(a_turn(), (), ())
    assert (bare.parent, bare.error, bare.context, bare.started_at) == (None, None, (), None)


def test_result_has_each_field_of_its_calls() -> None:
    """A call that has not ended has no outcome, even if its row holds one; a call of an agent has a turn once sent."""
    write = a_write(1, step=1, wave=2, arguments={"a": 1}, attempt=3, worker="host/7")
    over = ended(write, failed(write, "no stock"), started_at=NOW + 2, finished_at=NOW + 3)
    known = turn_result(TURN, (over, running(a_call(2, effect=None), outcome=over.outcome)), ()).calls
    assert known[0] == CallResult(
        call_id="1.1",
        tool_use_id="use-1",
        tool="tool1",
        effect="LOCAL_WRITE",
        step=1,
        wave=2,
        position=1,
        arguments={"a": 1},
        outcome="ToolFailure",
        content="no stock",
        is_error=True,
        attempt=3,
        worker="host/7",
        started_at=rfc3339(NOW + 2),
        finished_at=rfc3339(NOW + 3),
    )
    assert (known[1].effect, known[1].outcome, known[1].content, known[1].is_error) == (None, None, "", False)
    asked = turn_result(TURN, (a_question(0), a_question(1, deadline_at=NOW)), ()).calls
    assert [call.child_turn_id for call in asked] == [None, child_turn_id("turn", "0.1")]


def test_result_asks_what_people_are_asked_until_its_turn_ends() -> None:
    """A question has what the person sees; nobody need answer it once the turn is over."""
    call = a_write(0, arguments={"a": 1}, approval=Approval(expires_at=NOW + 60))
    waits = replace(TURN, status=TurnStatus.REQUIRES_ACTION)
    asked = {"call_id": "0.0", "tool": "tool0", "arguments": {"a": 1}, "expires_at": rfc3339(NOW + 60)}
    assert turn_result(waits, (call, a_write(1)), ()).required_actions == (asked,)
    assert turn_result(TURN, (call,), ()).required_actions == ()
