"""Waits for people, reported upwards: from each turn to its parent, up to the first turn.

A turn's row holds the waits below it that its events have reported. Each visit looks at the rows of the turn's children
and reports new waits in the commit that records them, so that each is reported once, whoever dies (ADR 33). A wait that
is over by then is not reported.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace

from harness_worker.core.children import Settled, child_of, open_delegated
from harness_worker.core.decisions import Snapshot
from harness_worker.core.records import Call, EventDraft, Park, Turn
from harness_worker.wire import TurnStatus


def notice(snapshot: Snapshot, settled: Settled) -> Settled:
    """Record which turns below wait for people now, and report each wait that is new.

    Args:
        snapshot: The snapshot that was read.
        settled: The turn, its calls and the events so far; children that have ended were taken.
    """
    turn = settled.turn
    asked = ((call, child_of(call, snapshot.children)) for call in open_delegated(settled.calls))
    parks = [(call, park) for call, child in asked if child is not None for park in _parks_of(child, snapshot.parked)]
    events = tuple(_told(call, park) for call, park in parks if park not in turn.parked_below)
    noticed = replace(turn, parked_below=tuple(park for _, park in parks))
    return replace(settled, turn=noticed, events=settled.events + events)


def _parks_of(child: Turn, going_on: AbstractSet[Park]) -> tuple[Park, ...]:
    """The child's own wait, or else those below it: a turn that is parked itself has no open call."""
    if child.status is TurnStatus.REQUIRES_ACTION:
        return (Park(turn_id=child.id, fence=child.fence),)
    return tuple(park for park in child.parked_below if park in going_on)


def _told(call: Call, park: Park) -> EventDraft:
    return EventDraft(type="subagent.requires_action", data={"call_id": call.call_id, "turn_id": park.turn_id})
