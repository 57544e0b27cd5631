"""Calls that need a person's approval: asking, and acting on the answer or on its absence (ADR 11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.outcomes import DenialReason, ToolDenied
from harness_worker.core.records import Call, CallStatus, EventDraft
from harness_worker.core.registration.tools import BoundArguments
from harness_worker.wire import Approval, TurnStatus, rfc3339

EXPIRED = "expired"
NO_REASON = "not approved"

Edit: TypeAlias = BoundArguments | ToolDenied
"""Arguments that a person edited, after checking: as they will be run, or why they cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A person's answer about a call.

    Args:
        decision: Whether it may run.
        reason: Why, for the model to read.
        arguments: Arguments to run it with instead of the model's.
    """

    decision: Literal["approve", "deny"]
    reason: str | None = None
    arguments: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """Changed calls, and the events that report the changes."""

    calls: tuple[Call, ...]
    events: tuple[EventDraft, ...]


def question_of(call: Call) -> Approval | None:
    """The call's unresolved approval; ``None`` if it needs none, or the answer was acted on."""
    approval = call.approval
    is_planned = call.status is CallStatus.PLANNED and call.outcome is None
    return approval if is_planned and approval is not None and not approval.is_resolved else None


def is_undecided(call: Call) -> bool:
    """Whether the call may not be sent yet, because it needs approval and no answer was acted on."""
    return question_of(call) is not None


def waiting(calls: Iterable[Call]) -> tuple[Call, ...]:
    """The calls that a person was asked about and that nobody has answered."""
    return tuple(call for call in calls if (question := question_of(call)) is not None and question.is_waiting)


def edited(calls: Iterable[Call]) -> tuple[Call, ...]:
    """The calls whose answers bring edited arguments that no worker has checked yet."""
    return tuple(
        call for call in calls if (question := question_of(call)) is not None and question.arguments is not None
    )


def next_expiry(calls: Iterable[Call]) -> float | None:
    """When the first of the open questions expires."""
    questions = filter(None, map(question_of, waiting(calls)))
    return min((question.expires_at for question in questions if question.expires_at is not None), default=None)


def is_over(question: Approval, now: float) -> bool:
    """Whether the time to answer has passed."""
    return question.expires_at is not None and now >= question.expires_at


def ask(calls: Iterable[Call], *, now: float, approval_s: float) -> Changed:
    """Ask about every undecided call of the plan that has not been asked about yet.

    Args:
        calls: The calls of the turn.
        now: Seconds since the epoch.
        approval_s: How long a person may take to answer, in seconds, unless the call's tool says otherwise.
    """
    asked = [
        (call, replace(question, expires_at=now + (approval_s if question.timeout_s is None else question.timeout_s)))
        for call in calls
        if (question := question_of(call)) is not None and question.expires_at is None
    ]
    return Changed(
        calls=tuple(replace(call, approval=question) for call, question in asked),
        events=tuple(_requested(call, question) for call, question in asked),
    )


def answer(snapshot: Snapshot, *, call_id: str, said: Answer) -> Decision[bool]:
    """Record a person's answer, as the gateway does; ``False`` if the call does not wait for one."""
    turn, now = snapshot.turn, snapshot.now
    open_calls = {each.call_id: each for each in waiting(snapshot.calls)}
    call = open_calls.pop(call_id, None)
    question = None if call is None or turn.status.is_final else question_of(call)
    if call is None or question is None or is_over(question, now):
        return Decision(result=False)
    heard = replace(question, decision=said.decision, reason=said.reason, arguments=said.arguments)
    status = turn.status if open_calls or turn.status is not TurnStatus.REQUIRES_ACTION else TurnStatus.RUNNING
    woken = replace(turn, status=status, wakes=turn.wakes + 1, wake_at=now)
    return Decision(result=True, turn=woken, calls=(replace(call, approval=heard),))


def resolve(calls: Sequence[Call], edits: Mapping[str, Edit], *, now: float) -> Changed:
    """Act on answers, and on questions that expired without one.

    Args:
        calls: The calls of the turn.
        edits: The edited arguments, checked, by call id; an answer whose arguments are not among them is left to the
            next visit.
        now: Seconds since the epoch.
    """
    resolved = [each for call in calls if (each := _resolved(call, edits.get(call.call_id), now=now)) is not None]
    return Changed(calls=tuple(call for call, _ in resolved), events=tuple(event for _, event in resolved))


def _resolved(call: Call, edit: Edit | None, *, now: float) -> tuple[Call, EventDraft] | None:
    question = question_of(call)
    if question is None:
        return None
    if question.decision == "deny":
        return _denied(call, question, question.reason or NO_REASON)
    if question.decision == "approve":
        return _approved(call, question, edit)
    return _denied(call, question, EXPIRED) if is_over(question, now) else None


def _denied(call: Call, question: Approval, reason: str) -> tuple[Call, EventDraft]:
    told = {"call_id": call.call_id, "decision": "deny", "reason": reason}
    closed = replace(
        call, outcome=call.denied(DenialReason.APPROVAL, reason), approval=replace(question, is_resolved=True)
    )
    return closed, EventDraft(type="approval.resolved", data=told)


def _approved(call: Call, question: Approval, edit: Edit | None) -> tuple[Call, EventDraft] | None:
    if question.arguments is not None and edit is None:
        return None
    told: dict[str, Any] = {"call_id": call.call_id, "decision": "approve"}
    told |= {"reason": question.reason} if question.reason is not None else {}
    closed = replace(call, approval=replace(question, is_resolved=True))
    if isinstance(edit, BoundArguments):
        told |= {"arguments": edit.values}
        closed = replace(closed, arguments=edit.values, was_coerced=edit.was_coerced)
    elif edit is not None:
        closed = replace(closed, outcome=edit)
    return closed, EventDraft(type="approval.resolved", data=told)


def _requested(call: Call, question: Approval) -> EventDraft:
    data = {"call_id": call.call_id, "tool": call.tool, "arguments": call.arguments}
    return EventDraft(type="approval.requested", data={**data, "expires_at": rfc3339(question.expires_at)})
