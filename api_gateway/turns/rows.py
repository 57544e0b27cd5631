"""Rows of turns, and of what belongs to them, as answers: one function each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from api_gateway.database import AnyRow
from api_gateway.listing import octets
from api_gateway.turns.answers import Call, Event, Message, Parent, Score, Turn, TurnSummary
from harness_worker.schema import turns
from harness_worker.wire import FINAL_STATUSES, Approval, child_turn_id, rfc3339

PLANNED: Final = "planned"
"""The status of a call that was not sent yet."""

ENDED: Final = "ended"
"""The status of a call that has its outcome."""

_SHOWN: Final = (
    *("id", "status", "stop_reason", "agent", "session_id", "input"),
    *("output_text", "budget", "error", "decision", "metadata", "batch_id", "custom_id"),
)
_TIMES: Final = ("created_at", "started_at", "finished_at")
_WORKED_UP: Final = (
    *("used", "delegated", "citations", "parent_id", "parent_call_id"),
    *("forked_from", "first_step", "parked_below"),
)
TURN_COLUMNS: Final = tuple(turns.c[name] for name in (*_SHOWN, *_TIMES, *_WORKED_UP))
"""The columns of a turn that are looked at to show it; the others may be long, as what it was prepared with."""

TEXT_BYTES: Final = octets(turns.c.input) + octets(turns.c.output_text)
"""How long those of them are of which only a request's body and a model say that."""


def summary_of(row: AnyRow, calls: Sequence[AnyRow] = (), below: Sequence[AnyRow] = ()) -> TurnSummary:
    """A row of ``turns`` as a list shows it, with what may wait for a person, of its ``tool_calls`` and below it."""
    return TurnSummary.model_validate(_turn_fields(row, calls, below))


def turn_of(row: AnyRow, calls: Sequence[AnyRow], below: Sequence[AnyRow] = ()) -> Turn:
    """A row of ``turns`` with its ``tool_calls``, and those below it that may wait for a person."""
    return Turn.model_validate({**_turn_fields(row, calls, below), "calls": [call_of(call) for call in calls]})


def question_of(call: AnyRow) -> Approval | None:
    """What is known of the word that a row of ``tool_calls`` waits for; ``None`` if it waits for none."""
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
        "parent": _parent(row),
        "citations": fields["citations"] or [],
        "forked_from": {"turn_id": row.forked_from, "step": row.first_step} if row.forked_from is not None else None,
        "required_actions": [] if row.status in FINAL_STATUSES else list(_actions(calls)),
        "subagent_actions": list(_actions(below)),
    }


def usage_of(used: Mapping[str, Any], delegated: Mapping[str, Any]) -> dict[str, Any]:
    """What a turn and those that it asked for have used, by figure."""
    return {name: value + delegated.get(name, 0) for name, value in used.items()}


def _parent(row: AnyRow) -> Parent | None:
    return None if row.parent_id is None else Parent(turn_id=row.parent_id, call_id=row.parent_call_id)


def _child_of(call: AnyRow) -> str | None:
    """The turn that a row of ``tool_calls`` is; there is none before it is sent."""
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
    """A row of ``tool_calls``; its outcome's record says itself what the model was told.

    An outcome in the row of a call that has not ended is no more than what it will end with unless a hook mends it.
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
