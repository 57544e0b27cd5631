"""Answers made from database rows: one function for each kind of row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from api_gateway.database import AnyRow
from api_gateway.listing import octets
from api_gateway.turns.answers import Call, Event, Message, Score, Turn, TurnSummary
from harness_worker.schema import turns
from harness_worker.wire import FINAL_STATUSES, Approval, child_turn_id, rfc3339

PLANNED: Final = "planned"
"""The status of a call that has not been sent yet."""

ENDED: Final = "ended"
"""The status of a call that has its outcome."""

_SHOWN: Final = (
    *("id", "status", "stop_reason", "agent", "session_id", "input"),
    *("output_text", "budget", "error", "decision", "metadata", "batch_id", "custom_id"),
)
_TIMES: Final = ("created_at", "started_at", "finished_at")
_CONVERTED: Final = (
    *("used", "delegated", "citations", "parent_id", "parent_call_id"),
    *("forked_from", "first_step", "parked_below"),
)
TURN_COLUMNS: Final = tuple(turns.c[name] for name in (*_SHOWN, *_TIMES, *_CONVERTED))
"""The columns that are read to show a turn. Others may be long, such as what it was prepared with."""

TEXT_BYTES: Final = octets(turns.c.input) + octets(turns.c.output_text)
"""The size in bytes of those columns whose length is limited only by a request's body, or by a model."""


def summary_of(row: AnyRow, calls: Sequence[AnyRow], below: Sequence[AnyRow]) -> TurnSummary:
    """A row of ``turns`` as lists show it, with the calls that may wait for a person: its own, and those below it."""
    return TurnSummary.model_validate(_turn_fields(row, calls, below))


def turn_of(row: AnyRow, calls: Sequence[AnyRow], below: Sequence[AnyRow] = ()) -> Turn:
    """A row of ``turns`` with its ``tool_calls``, and the calls below it that may wait for a person."""
    return Turn.model_validate({**_turn_fields(row, calls, below), "calls": [call_of(call) for call in calls]})


def question_of(call: AnyRow) -> Approval | None:
    """The approval that a row of ``tool_calls`` waits for; ``None`` if it waits for none."""
    if call.approval is None or call.status != PLANNED or call.outcome is not None:
        return None
    question = Approval.from_record(call.approval)
    return question if question.is_waiting else None


def _turn_fields(row: AnyRow, calls: Sequence[AnyRow], below: Sequence[AnyRow]) -> dict[str, Any]:
    fields = row._asdict()  # pyright: ignore[reportPrivateUsage] - public, as a namedtuple's
    return {
        **{name: fields[name] for name in _SHOWN},
        **{name: rfc3339(fields[name]) for name in _TIMES},
        "usage": usage_of(fields["used"], fields["delegated"] or {}),
        "parent": {"turn_id": row.parent_id, "call_id": row.parent_call_id} if row.parent_id is not None else None,
        "citations": fields["citations"] or [],
        "forked_from": {"turn_id": row.forked_from, "step": row.first_step} if row.forked_from is not None else None,
        "required_actions": [] if row.status in FINAL_STATUSES else list(_actions(calls)),
        "subagent_actions": list(_actions(below)),
    }


def usage_of(used: Mapping[str, Any], delegated: Mapping[str, Any]) -> dict[str, Any]:
    """What a turn and the turns it asked for have used, by name."""
    return {name: value + delegated.get(name, 0) for name, value in used.items()}


def _child_of(call: AnyRow) -> str | None:
    """The id of the turn that a call of an agent started; ``None`` before the call was sent, and for other calls."""
    if call.delegation is None or call.deadline_at is None:
        return None
    return child_turn_id(call.turn_id, f"{call.step}.{call.position}")


def _actions(calls: Sequence[AnyRow]) -> Iterator[Mapping[str, Any]]:
    for call in calls:
        question = question_of(call)
        if question is not None:
            asked = {"call_id": f"{call.step}.{call.position}", "tool": call.tool, "arguments": call.arguments}
            yield {"turn_id": call.turn_id, **asked, "expires_at": rfc3339(question.expires_at) or ""}


def call_of(row: AnyRow) -> Call:
    """A row of ``tool_calls``; the record of its outcome includes the content that the model reads.

    If a call has not ended, an outcome in its row is provisional: a hook may still change it.
    """
    outcome: dict[str, Any] = row.outcome or {} if row.status == ENDED else {}
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
        child_turn_id=_child_of(row),
        started_at=rfc3339(row.started_at),
        finished_at=rfc3339(row.finished_at),
    )


def message_of(row: AnyRow) -> Message:
    """A row of ``messages``."""
    return Message(role=row.role, content=row.content)


def score_of(row: AnyRow) -> Score:
    """A row of ``scores``."""
    return Score(judge=row.judge, score=row.score, reason=row.reason, error=row.error, at=rfc3339(row.at))


def event_of(row: AnyRow) -> Event:
    """A row of ``turn_events``."""
    return Event(seq=row.seq, type=row.type, turn_id=row.turn_id, at=rfc3339(row.at) or "", data=row.data)
