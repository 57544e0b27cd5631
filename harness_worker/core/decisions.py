"""The input of a pure rule (a snapshot) and its output (a decision)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from harness_worker.core.memory.memories import Memory
from harness_worker.core.records import Call, EventDraft, Message, Park, Turn

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """Metadata of an output that was too long for the context and is stored elsewhere."""

    id: str
    tenant: str
    session_id: str
    turn_id: str
    call_id: str
    url: str
    size_bytes: int
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A turn and the calls of its latest step, as one transaction reads them.

    Args:
        now: The database's clock, seconds since the epoch.
        turn: The turn.
        calls: Its calls that are not collected yet, and all calls of the latest step, by position.
        is_behind: Whether an earlier turn of its session has not ended; set only for a turn that ``waits``.
        is_crowded: Whether its tenant already runs as many turns as it may; set only for a queued turn.
        children: The turns of its open calls of agents.
        parked: The waits for people below its children that the children know of and that still last.
    """

    now: float
    turn: Turn
    calls: tuple[Call, ...]
    is_behind: bool = False
    is_crowded: bool = False
    children: tuple[Turn, ...] = ()
    parked: frozenset[Park] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Generic[T_co]):
    """What a pure rule wants written after reading a snapshot.

    Args:
        result: What the caller learns.
        turn: The turn's new state; ``None`` leaves it unchanged.
        calls: New calls, and the new states of old ones.
        messages: Messages to append.
        events: Durable events to append, in order.
        artifacts: Metadata rows to add.
        judges: The judges whose scores of the turn are due from now on.
        memories: What to remember from the turn, in order.
        children: Turns to add, one for each call of an agent.
    """

    result: T_co
    turn: Turn | None = None
    calls: tuple[Call, ...] = ()
    messages: tuple[Message, ...] = ()
    events: tuple[EventDraft, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    judges: tuple[str, ...] = ()
    memories: tuple[Memory, ...] = ()
    children: tuple[Turn, ...] = ()

    def with_result(self, result: U) -> Decision[U]:
        """The same changes with another result."""
        return replace(cast("Decision[Any]", self), result=result)
