"""What a pure rule is given and what it makes of it."""

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
    """Metadata of an oversized output stored aside."""

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
    """A turn and the calls of its latest step, as they stand until the decision on them is committed.

    Args:
        now: The database's clock, seconds since the epoch.
        turn: The turn.
        calls: Its calls that are not collected yet, and all of the latest step, by position.
        is_behind: Whether an earlier turn of its session has not ended; only told of a turn that ``waits``.
        is_crowded: Whether as many turns of its tenant run as may; only told of a queued turn.
        children: The turns that its open calls of agents are.
        parked: Of the waits for people that these know of below them, those that go on.
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
    """What a pure rule makes of a snapshot.

    Args:
        result: What the caller learns.
        turn: The turn as it shall be; ``None`` leaves it.
        calls: Calls as they shall be, old ones changed or new ones.
        messages: Messages to append.
        events: Durable events to append, in order.
        artifacts: Metadata rows to add.
        judges: Whose scores of the turn are due from now on.
        memories: What to remember of the turn, in order.
        children: Turns to add: what calls of agents are.
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
