"""Waits for people, told to those who follow the turns that asked: from each turn to its parent, up to the first.

A turn's row holds the waits below it of which its events tell. Each visit looks at its children's rows, and tells of
those that are new in the commit that notes them: so each is told once, whoever dies (ADR 33). A wait that is over by
then is not told.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from harness_worker.core.children import child_of, open_delegated
from harness_worker.core.decisions import Snapshot
from harness_worker.core.records import Call, EventDraft, Park, Turn
from harness_worker.wire import TurnStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """A turn that knows which turns below it wait for people.

    Args:
        turn: The turn, with the waits.
        events: One for each wait that it did not know of.
    """

    turn: Turn
    events: tuple[EventDraft, ...] = ()


def notice(snapshot: Snapshot, turn: Turn, calls: Iterable[Call]) -> Noticed:
    """Take down which turns below wait for people by now, and tell of each wait that is new.

    Args:
        snapshot: What was there.
        turn: The turn as changed so far.
        calls: Its calls as changed so far.
    """
    asked = ((call, child_of(call, snapshot.children)) for call in open_delegated(calls))
    parks = [(call, park) for call, child in asked if child is not None for park in _parks_of(child, snapshot.parked)]
    events = tuple(_told(call, park) for call, park in parks if park not in turn.parked_below)
    return Noticed(turn=replace(turn, parked_below=tuple(park for _, park in parks)), events=events)


def _parks_of(child: Turn, going_on: AbstractSet[Park]) -> tuple[Park, ...]:
    """Its own wait, or those below it: a turn that is parked itself has no call under way."""
    if child.status is TurnStatus.REQUIRES_ACTION:
        return (Park(turn_id=child.id, fence=child.fence),)
    return tuple(park for park in child.parked_below if park in going_on)


def _told(call: Call, park: Park) -> EventDraft:
    return EventDraft(type="subagent.requires_action", data={"call_id": call.call_id, "turn_id": park.turn_id})
