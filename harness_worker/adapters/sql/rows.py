"""Converts rows to values and values to columns, with one function for each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from operator import attrgetter
from typing import Any, Final, cast

from harness_worker.core.budget import BudgetLimits, Usage, agent_limits
from harness_worker.core.decisions import Artifact
from harness_worker.core.memory.memories import Memory
from harness_worker.core.outcomes import (
    ToolArtifactReference,
    ToolDenied,
    ToolExecutionResult,
    ToolFailure,
    ToolTimeout,
    from_record,
    to_record,
)
from harness_worker.core.prompting.past import PastTurn
from harness_worker.core.recall import Recall
from harness_worker.core.records import Call, CallStatus, Carried, Event, Message, Park, Turn, TurnPreparation
from harness_worker.core.registration.delegation import Delegation
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.tools import AgentSpec, ToolSpec
from harness_worker.core.sources.citations import Citation, CitationKind
from harness_worker.core.text import clean_text
from harness_worker.wire import Approval, StopReason, Strategy, TurnStatus, as_mapping, fields_of

TURN_FIELDS: Final = tuple(field.name for field in fields(Turn))
CALL_FIELDS: Final = tuple(field.name for field in fields(Call))
_turn_values = attrgetter(*TURN_FIELDS)
_call_values = attrgetter(*CALL_FIELDS)


def turn_of(row: Sequence[Any]) -> Turn:
    """A turn from its columns in the order of ``TURN_FIELDS``."""
    values = dict(zip(TURN_FIELDS, row, strict=True))
    values["status"] = TurnStatus(values["status"])
    values["budget"] = BudgetLimits(**fields_of(BudgetLimits, values["budget"]))
    values["used"] = Usage(**fields_of(Usage, values["used"]))
    delegated: Mapping[str, Any] = values["delegated"] or {}
    values["delegated"] = Usage(**fields_of(Usage, delegated))
    values["recall"] = Recall.from_record(values["recall"])
    if values["stop_reason"] is not None:
        values["stop_reason"] = StopReason(values["stop_reason"])
    if values["decision"] is not None:
        values["decision"] = Strategy(values["decision"])
    values["preparation"] = _preparation_of(values["preparation"])
    values["carried"] = _carried_of(values["carried"])
    values["citations"] = tuple(map(_citation_of, values["citations"] or ()))
    values["parked_below"] = tuple(Park(**fields_of(Park, park)) for park in values["parked_below"] or ())
    return Turn(**values)


def call_of(row: Sequence[Any]) -> Call:
    """A call from its columns in the order of ``CALL_FIELDS``."""
    values = dict(zip(CALL_FIELDS, row, strict=True))
    values["status"] = CallStatus(values["status"])
    if values["effect"] is not None:
        values["effect"] = Effect(values["effect"])
    if values["delegation"] is not None:
        values["delegation"] = Delegation.from_record(values["delegation"])
    if values["outcome"] is not None:
        values["outcome"] = from_record(values["outcome"])
    if values["approval"] is not None:
        values["approval"] = Approval.from_record(values["approval"])
    return Call(**values)


def message_of(row: Sequence[Any]) -> Message:
    """A message from (position, role, content)."""
    position, role, content = row
    return Message(position=position, role=role, content=content)


def event_of(row: Sequence[Any]) -> Event:
    """An event from (turn_id, seq, type, at, data)."""
    turn_id, seq, kind, at, data = row
    return Event(turn_id=turn_id, seq=seq, type=kind, at=at, data=data)


def past_of(turns: Sequence[Sequence[Any]], messages: Sequence[Sequence[Any]]) -> tuple[PastTurn, ...]:
    """The past turns in the rows of ``sessions.PAST_TURNS`` and ``sessions.PAST_MESSAGES``."""
    said: dict[int, list[Message]] = defaultdict(list)
    for number, *message in messages:
        said[number].append(message_of(message))
    return tuple(
        PastTurn(
            status=TurnStatus(status),
            output_text=output_text,
            preparation=_preparation_of(preparation),
            messages=tuple(said[number]),
            stop_reason=None if stop_reason is None else StopReason(stop_reason),
            carried=_carried_of(carried),
        )
        for number, status, output_text, preparation, stop_reason, carried in turns
    )


def _preparation_of(record: Mapping[str, Any] | None) -> TurnPreparation | None:
    return None if record is None else TurnPreparation.from_record(record)


def _carried_of(record: Mapping[str, Any] | None) -> Carried | None:
    return None if record is None else Carried.from_record(record)


def _citation_of(record: Mapping[str, Any]) -> Citation:
    return Citation(**{**fields_of(Citation, record), "kind": CitationKind(record["kind"])})


def agent_row(app: str, agent: AgentSpec) -> dict[str, Any]:
    """The columns of a published agent; its budget is complete, because the gateway knows no defaults."""
    return {
        "name": agent.name,
        "app": app,
        "model": agent.model,
        "tools": [_tool_record(tool) for tool in agent.tools],
        "budget": asdict(agent_limits(agent.budget)),
        "parallel": agent.parallel,
    }


def columns_of(value: Turn | Call | Artifact | Memory, names: Iterable[str] | None = None) -> dict[str, Any]:
    """The columns ``names`` of a value, or all its columns."""
    wanted = (field.name for field in fields(value)) if names is None else names
    return {name: _column(getattr(value, name)) for name in wanted}


def changed_columns(old: Turn | Call, new: Turn | Call) -> dict[str, Any]:
    """The columns in which ``new`` differs from ``old``."""
    names, values = (TURN_FIELDS, _turn_values) if isinstance(new, Turn) else (CALL_FIELDS, _call_values)
    triples = zip(names, values(old), values(new), strict=True)
    return {name: _column(after) for name, before, after in triples if before != after}


def _tool_record(tool: ToolSpec) -> dict[str, Any]:
    effect = None if tool.effect is None else tool.effect.value
    said = {"name": tool.name, "description": tool.description, "effect": effect, "schema": dict(tool.schema)}
    whose = {} if tool.delegation is None else {"agent": tool.delegation.agent}
    lax = {} if tool.checks_formats else {"checks_formats": False}
    return {**said, "queue": tool.queue, **whose, **lax}


def _column(value: Any) -> Any:  # noqa: ANN401 - any field in, any column out
    match value:
        case None | int() | float():
            return value
        case Enum():
            return value.value
        case str():
            return clean_text(value)
        case tuple():
            return [_column(each) for each in cast("tuple[object, ...]", value)] or None
        case Mapping():
            return dict(cast("Mapping[str, Any]", value))
        case _:
            return _record(value) if is_dataclass(value) else value


def _record(value: Any) -> Mapping[str, Any]:  # noqa: ANN401 - any value that is kept as JSON
    match value:
        case ToolExecutionResult() | ToolTimeout() | ToolFailure() | ToolDenied() | ToolArtifactReference():
            return to_record(value)
        case Delegation():
            return value.to_record()
        case TurnPreparation() | Carried():
            return {**as_mapping(value), "sources": [as_mapping(source) for source in value.sources]}
        case _:
            return as_mapping(value)
