"""Parking: a turn that waits for a person is held by nobody, and needs no look before an answer or an expiry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness_worker.core.approvals import ask, is_undecided, next_expiry, waiting
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.lifecycle import merge
from harness_worker.core.records import Call, EventDraft, Turn
from harness_worker.core.visits import Visit, nudged, release
from harness_worker.wire import TurnStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """A turn that was released to wait for a person.

    Args:
        turn: The turn, released.
        calls: Its calls; every undecided one has been asked about.
        events: Events that report the questions and the wait.
        look_again: Whether somebody nudged the turn during the visit, or gave an answer it could not act on yet.
    """

    turn: Turn
    calls: tuple[Call, ...]
    events: tuple[EventDraft, ...]
    look_again: bool


def park(visit: Visit, turn: Turn, calls: Sequence[Call], *, now: float, approval_s: float) -> Parked:
    """Ask about every undecided call of the plan, and release the turn until somebody answers."""
    asked = ask(calls, now=now, approval_s=approval_s)
    calls = merge(calls, asked.calls)
    open_calls = waiting(calls)
    if len(open_calls) < sum(map(is_undecided, calls)):
        released = release(visit, turn, wake_at=now, now=now)
        return Parked(turn=released, calls=calls, events=asked.events, look_again=True)
    told = EventDraft(type="turn.requires_action", data={"calls": [call.call_id for call in open_calls]})
    parked = replace(turn, status=TurnStatus.REQUIRES_ACTION, parked_at=now, looks=0)
    released = release(visit, parked, wake_at=next_expiry(calls) or now, now=now)
    return Parked(turn=released, calls=calls, events=(*asked.events, told), look_again=nudged(visit, turn))


def rest(snapshot: Snapshot) -> Decision[None] | None:
    """The decision on a parked turn for which there is nothing to do; ``None`` if there is something.

    Such a turn is not even claimed, because the visit would have to park it again and emit events about that.
    """
    turn, expires_at = snapshot.turn, next_expiry(snapshot.calls)
    rests = turn.status is TurnStatus.REQUIRES_ACTION and not turn.cancel_requested
    if not rests or expires_at is None or expires_at <= snapshot.now:
        return None
    if len(waiting(snapshot.calls)) < sum(map(is_undecided, snapshot.calls)):
        return None
    return Decision(result=None, turn=None if turn.wake_at == expires_at else replace(turn, wake_at=expires_at))
