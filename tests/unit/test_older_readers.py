"""Records that a later version wrote: an older process ignores the fields that it does not know."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from api_gateway.turns.rows import question_of
from harness_worker.adapters.sql.rows import CALL_FIELDS, TURN_FIELDS, call_of, columns_of, turn_of
from harness_worker.core.budget import BudgetLimits, Usage, agent_limits
from harness_worker.core.outcomes import (
    DenialReason,
    ToolArtifactReference,
    ToolDenied,
    ToolExecutionResult,
    ToolFailure,
    ToolOutcome,
    ToolTimeout,
)
from harness_worker.core.recall import Recall
from harness_worker.core.records import Carried, Park, TurnPreparation
from harness_worker.core.registration.delegation import Delegation
from harness_worker.core.sources.citations import Citation, CitationKind, Source
from harness_worker.turn.tickets import Ticket, ticket_for
from harness_worker.wire import Approval
from tests.unit.builders import a_call, a_turn

LATER = {"added_later": 1}
SOURCE: dict[str, Any] = {"id": "1", "title": "t", "source": "s"}
TURN = a_turn(
    budget=BudgetLimits(max_steps=3),
    used=Usage(steps=1),
    delegated=Usage(dollars=0.5),
    recall=Recall(repeats=2, warned=("max_steps",)),
    preparation=TurnPreparation(context=("c",), prefix_hash="p", sources=(Source(**SOURCE),), offered={"a": ("t",)}),
    carried=Carried(tools=("t",), has_artifact=True, sources=(Source(**SOURCE),)),
    citations=(Citation(kind=CitationKind.WEB, **SOURCE),),
    parked_below=(Park(turn_id="t2", fence=3),),
)
OF: dict[str, Any] = {"call_id": "0.0", "tool_name": "tool0"}
OUTCOMES: list[ToolOutcome] = [
    ToolExecutionResult(**OF, output="x", elapsed_ms=1.0),
    ToolTimeout(**OF, deadline_s=1.0),
    ToolFailure(**OF, error="x"),
    ToolDenied(**OF, reason=DenialReason.BUDGET, details="x"),
    ToolArtifactReference(**OF, artifact_id="a", summary="s", url="u", size_bytes=1, elapsed_ms=1.0),
]
CALL = a_call(delegation=Delegation(agent="b", budget=BudgetLimits()), approval=Approval(expires_at=1.0))


def columns_of_later(value: Any, names: Sequence[str]) -> list[Any]:  # noqa: ANN401 - a turn or a call
    """The columns of a value, as a version writes them that has a field more in every record."""
    columns = json.loads(json.dumps(columns_of(value)))
    return [later(getattr(value, name), columns[name]) for name in names]


def later(value: object, record: Any) -> Any:  # noqa: ANN401 - any JSON
    """The record of a value with a field more wherever it is one of a dataclass."""
    if is_dataclass(value):
        return {**{name: later(getattr(value, name, None), each) for name, each in record.items()}, **LATER}
    parts = parts_of(value)
    return [later(*each) for each in zip(parts, record, strict=True)] if parts else record


def records_in(value: object) -> set[type]:
    """The dataclasses among a value's fields, and in them."""
    if is_dataclass(value):
        inner = (records_in(getattr(value, field.name)) for field in fields(value))
        return {cast("type", type(value))}.union(*inner)
    found: set[type] = set()
    return found.union(*map(records_in, parts_of(value)))


def parts_of(value: object) -> tuple[object, ...]:
    """A tuple's; anything else has none."""
    return cast("tuple[object, ...]", value) if isinstance(value, tuple) else ()


def test_turn_of_a_later_version_is_read() -> None:
    """Each record in its row has members that this version does not know."""
    held = {Usage, BudgetLimits, Recall, TurnPreparation, Carried, Source, Citation, Park}
    assert records_in(TURN) == {type(TURN), *held}
    assert turn_of(columns_of_later(TURN, TURN_FIELDS)) == TURN


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_call_of_a_later_version_is_read(outcome: ToolOutcome) -> None:
    """Each record in its row, and each kind of outcome, has members that this version does not know."""
    call = replace(CALL, outcome=outcome)
    assert records_in(call) == {type(call), type(outcome), Approval, Delegation, BudgetLimits}
    assert call_of(columns_of_later(call, CALL_FIELDS)) == call


def test_ticket_of_a_later_version_is_read() -> None:
    """A tool process is told of the call by a coordinator of another version."""
    ticket = ticket_for(TURN, CALL)
    record: Mapping[str, Any] = json.loads(ticket.to_json())
    assert Ticket.from_json(json.dumps({**record, **LATER})) == ticket


def test_published_limits_of_a_later_version_are_read() -> None:
    """A limit that this version does not know it cannot hold anybody to."""
    assert agent_limits({"max_steps": 2, **LATER}) == BudgetLimits(max_steps=2)


def test_question_of_a_later_version_is_read_by_the_gateway() -> None:
    """A worker of another version asked a person."""
    row = SimpleNamespace(approval={"expires_at": 1.0, **LATER}, status="planned", outcome=None)
    assert question_of(cast("Any", row)) == Approval(expires_at=1.0)
