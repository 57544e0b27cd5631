"""Rows as answers: one function each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Row

from api_gateway.models import Agent, Call, Event, Message, Turn, TurnSummary
from harness_worker.wire import rfc3339

AnyRow = Row[Any]

_SHOWN: Final = (
    *("id", "status", "stop_reason", "agent", "session_id", "input"),
    *("output_text", "budget", "error", "metadata"),
)
_TIMES: Final = ("created_at", "started_at", "finished_at")


def summary_of(row: AnyRow) -> TurnSummary:
    """A row of ``turns`` as a list shows it."""
    return TurnSummary.model_validate(_turn_fields(row))


def turn_of(row: AnyRow, calls: Sequence[AnyRow]) -> Turn:
    """A row of ``turns`` with those of its ``tool_calls``."""
    return Turn.model_validate({**_turn_fields(row), "calls": [call_of(call) for call in calls]})


def _turn_fields(row: AnyRow) -> dict[str, Any]:
    fields = row._asdict()  # pyright: ignore[reportPrivateUsage]
    return {
        **{name: fields[name] for name in _SHOWN},
        **{name: rfc3339(fields[name]) for name in _TIMES},
        "usage": fields["used"],
        "required_actions": [],
    }


def call_of(row: AnyRow) -> Call:
    """A row of ``tool_calls``; its outcome's record says itself what the model was told."""
    outcome: dict[str, Any] = row.outcome or {}
    return Call(
        call_id=f"{row.step}.{row.position}",
        tool_use_id=row.tool_use_id,
        tool=row.tool,
        effect=row.effect,
        step=row.step,
        wave=row.wave,
        position=row.position,
        arguments=row.arguments,
        outcome=outcome.get("kind"),
        content=outcome.get("content", ""),
        is_error=outcome.get("is_error", False),
        attempt=row.attempt,
        worker=row.worker,
        started_at=rfc3339(row.started_at),
        finished_at=rfc3339(row.finished_at),
    )


def message_of(row: AnyRow) -> Message:
    """A row of ``messages``."""
    return Message(role=row.role, content=row.content)


def event_of(row: AnyRow) -> Event:
    """A row of ``turn_events``."""
    return Event(seq=row.seq, type=row.type, turn_id=row.turn_id, at=rfc3339(row.at) or "", data=row.data)


def agent_of(row: AnyRow) -> Agent:
    """A row of ``agents``."""
    return Agent(name=row.name, model=row.model, tools=row.tools, budget=row.budget, parallel=row.parallel)
