"""What must hold of the waits for people that a turn tells of: each of a turn below it, told once, while it lasts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from harness_worker.core.records import Event
from tests.unit.memory_store import MemoryTurnStore

LONG_S = 15.0
"""Who waits so long is noticed by every turn above it, though its wake-up be passed over at each level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A turn's wait for a person, from its parking to the next commit that tells something."""

    begins: float
    ends: float


def wait_breaches(store: MemoryTurnStore, turn_id: str) -> Iterator[str]:
    """Everything wrong with what the turn tells of those below it."""
    told = [event for event in _events(store, turn_id) if event.type == "subagent.requires_action"]
    for below in {event.data["turn_id"] for event in told}:
        mine = [event for event in told if event.data["turn_id"] == below]
        if {event.data["call_id"] for event in mine} != {_call_that_leads(store, turn_id, below)}:
            yield f"{turn_id} tells of {below} by the wrong call: {mine}"
        places = [_place(waits_of(store, below), event.at) for event in mine]
        if None in places or len(set(places)) < len(places):
            yield f"{turn_id} tells of the waits {places} of {below}"


def untold_waits(store: MemoryTurnStore, turn_id: str) -> Iterator[str]:
    """The long waits of the turn that one above it never told of."""
    for above in _above(store, turn_id):
        told = [event.at for event in _events(store, above) if event.data.get("turn_id") == turn_id]
        for wait in waits_of(store, turn_id):
            is_known = any(wait.begins <= at <= wait.ends for at in told)
            if wait.ends - wait.begins > LONG_S and not is_known:
                yield f"{above} never told that {turn_id} waits from {wait.begins} to {wait.ends}"


def waits_of(store: MemoryTurnStore, turn_id: str) -> Sequence[Wait]:
    """The turn's own waits, in order."""
    events = [event for event in _events(store, turn_id) if event.type != "tool.late"]  # which ends no wait
    parked = [(place, event.at) for place, event in enumerate(events) if event.type == "turn.requires_action"]
    ends = [next((after.at for after in events[place:] if after.at > at), inf) for place, at in parked]
    return [Wait(begins=at, ends=end) for (_, at), end in zip(parked, ends, strict=True)]


def _place(waits: Sequence[Wait], at: float) -> int | None:
    return next((place for place, wait in reversed([*enumerate(waits)]) if wait.begins <= at <= wait.ends), None)


def _call_that_leads(store: MemoryTurnStore, turn_id: str, below: str) -> str | None:
    path = [below, *_above(store, below)]
    return store.turns[path[path.index(turn_id) - 1]].parent_call_id if turn_id in path[1:] else None


def _above(store: MemoryTurnStore, turn_id: str) -> Sequence[str]:
    parent_id = store.turns[turn_id].parent_id
    return [] if parent_id is None else [parent_id, *_above(store, parent_id)]


def _events(store: MemoryTurnStore, turn_id: str) -> Sequence[Event]:
    return [event for event in store.events if event.turn_id == turn_id]
