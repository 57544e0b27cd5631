"""What the application needs from the outside: one Protocol a collaborator.

What keeps, decides or finds something has one contract suite in ``tests/contract`` for all that implement it. Those of
``Clock``, ``StopSignal``, ``Dispatcher`` and ``SoftDeadline`` are tested each by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeVar

from harness_worker.core.budget import BudgetLimits, Usage
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.memory.memories import Memory, Remembered
from harness_worker.core.prompting.prompt import PastTurn, RequestKind
from harness_worker.core.reads import SettledRead
from harness_worker.core.records import Call, Event, Message, Turn
from harness_worker.core.registration.thinking import ThinkLevel
from harness_worker.core.registration.tools import AgentSpec, ToolSpec
from harness_worker.core.scoring.scores import ScoreRow
from harness_worker.core.sources.context_pack import ContextPack
from harness_worker.core.tracing.trace import Trace

T = TypeVar("T")


# --- time -----------------------------------------------------------------------------------------------------------


class Clock(Protocol):
    """Monotonic time of this process."""

    def monotonic(self) -> float:
        """Seconds since some point in the past, those in which the host was suspended among them."""
        ...

    def wait(self, seconds: float) -> None:
        """Return after ``seconds``."""
        ...


class StopSignal(Protocol):
    """Says whether what is under way shall stop; ``threading.Event`` is one."""

    def is_set(self) -> bool:
        """Whether it shall stop."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to ``timeout`` seconds for the signal; whether it came."""
        ...


# --- the store ------------------------------------------------------------------------------------------------------


class OverdueTurn(NamedTuple):
    """A turn that somebody must look at and nobody does.

    Args:
        id: Which.
        priority: The queue of its wake-ups.
        is_queued: Whether it has not begun.
        since: When a look was due, in seconds since the epoch.
    """

    id: str
    priority: str
    is_queued: bool
    since: float


class LoadedTurn(NamedTuple):
    """A turn with all its calls, ordered by step and position."""

    turn: Turn
    calls: tuple[Call, ...]


class WaitingTurn(NamedTuple):
    """A turn that waits for another one to end or to make room, and the queue of its wake-ups."""

    id: str
    priority: str


class HeldTurn(NamedTuple):
    """A turn that a visit holds: by whose hand, and under which fence."""

    turn_id: str
    owner: str
    fence: int


class TurnStore(Protocol):
    """The only truth. Every method is one transaction; raises ``TransientError`` when the database does not answer."""

    def transact(self, turn_id: str, decide: Callable[[Snapshot], Decision[T]], *, follows: bool = False) -> T | None:
        """Lock the turn, let ``decide`` say what becomes of it, write that, commit, then send its events.

        ``decide`` is pure and may be called again. Returns its result, or ``None`` if there is no such turn.

        Args:
            turn_id: Which turn.
            decide: The rule.
            follows: This process wrote the turn a moment ago, and most likely nobody has since: the store may decide
                on what it left, as long as it commits only if that is so.
        """
        ...

    def insert_turn(self, turn: Turn) -> None:
        """Add a queued turn, last of its session, with its user message and ``turn.queued``.

        The database sets its times and its place: ``turn.deadline_at`` is ignored, it becomes the database's now plus
        the budget's ``timeout_s``; so are ``number`` and ``waits``.
        """
        ...

    def load(self, turn_id: str) -> LoadedTurn | None:
        """The turn as it stands; no lock."""
        ...

    def history(self, turn_id: str) -> tuple[Message, ...]:
        """The turn's messages in order."""
        ...

    def events_of(self, turn_id: str) -> tuple[Event, ...]:
        """The turn's events in order."""
        ...

    def past(self, turn: Turn) -> tuple[PastTurn, ...]:
        """The earlier turns of the same session that have ended, in order, after those that it was forked with."""
        ...

    def next_of_session(self, turn: Turn) -> WaitingTurn | None:
        """The next turn of the same session that has not ended; ``turn`` has."""
        ...

    def next_of_tenant(self, turn: Turn) -> list[WaitingTurn]:
        """Turns of the same tenant to wake when one of its turns has made room.

        Interactive ones go first, then the oldest. None, and nothing is asked, where any number of turns of a tenant
        may run.
        """
        ...

    def beat_turns(self, visits: Sequence[HeldTurn], ttl_s: float) -> frozenset[HeldTurn]:
        """Prolong the leases of visits that still hold their turns, none past its ``visit_deadline``.

        Returns those that shall give up: somebody wants the turn cancelled, or it is held no longer. Locked rows are
        left alone.
        """
        ...

    def beat_calls(self, runs: Sequence[RunningCall], ttl_s: float) -> None:
        """Prolong the leases of running writes; locked rows are left alone (locked is not lost).

        A late beat does not bring back a process known to be dead.
        """
        ...

    def lose_call(self, run: RunningCall) -> str | None:
        """End the lease of a running write whose process is known to be dead, or give up soon: it ends by itself.

        Returns the priority of its turn, for who wakes it then; ``None`` if there is no such turn.
        """
        ...

    def overdue(self, limit: int, backoff_s: float) -> list[OverdueTurn]:
        """Turns that somebody must look at and nobody does, the oldest first; pushes their ``wake_at`` on.

        By ``backoff_s``; that of a queued turn by its age, if that is more: at most a minute, ten of a batch.
        """
        ...

    def give_back(self, taken: Sequence[OverdueTurn]) -> None:
        """Let turns of :meth:`overdue` be overdue again, since they were: nobody could be told to look at them."""
        ...

    def ping(self) -> None:
        """Read nothing, to learn whether the database answers and has its tables."""
        ...


class ExpiredArtifact(NamedTuple):
    """An artifact whose time is over, since ``expires_at`` (seconds since the epoch), and where its bytes are."""

    expires_at: float
    id: str
    url: str


class Artifacts(Protocol):
    """Whose artifacts there are, and where; the commit that ends a call adds them. Their bytes are a ``BlobStore``'s.

    Every method is one transaction; raises ``TransientError`` when the database does not answer.
    """

    def url_of(self, artifact_id: str, *, tenant: str, session_id: str) -> str | None:
        """Where the bytes of an artifact of the session are, or of one that it was forked from.

        ``None`` if there is none of that id, or no more.
        """
        ...

    def expired(self, limit: int, *, after: ExpiredArtifact | None = None) -> list[ExpiredArtifact]:
        """Artifacts whose time is over, the first that expired first; those that come after ``after``."""
        ...

    def forget(self, artifact_ids: Sequence[str]) -> None:
        """Remove the rows of artifacts."""
        ...


class Catalogue(Protocol):
    """The agents that coordinators publish, for those who make turns.

    Every method is one transaction; raises ``TransientError`` when the database does not answer.
    """

    def publish(self, app: str, agents: Iterable[AgentSpec]) -> None:
        """Publish agents; one of that name from another app or version is taken over."""
        ...

    def renew(self, app: str, agents: Iterable[AgentSpec]) -> None:
        """Keep agents published: add those that are missing, and forget others of ``app`` that nobody keeps any more.

        A name that another version or app has published is taken over only when nobody keeps that either.
        """
        ...

    def caps_of(self, agent: str) -> BudgetLimits | None:
        """The most that a turn of this agent may have, as published; ``None`` if nobody published the agent."""
        ...


class Scores(Protocol):
    """What judges, and a memory's model, say of turns that are over; the commit that ends a turn adds its rows.

    Every method is one transaction; raises ``TransientError`` when the database does not answer.
    """

    def change(
        self,
        turn_id: str,
        judge: str,
        rule: Callable[[ScoreRow, float], tuple[ScoreRow, T]],
        found: Remembered | None = None,
    ) -> T | None:
        """Lock the row, let ``rule`` say what becomes of it now, write that; ``None`` if there is no such row.

        ``rule`` is pure and given the row and the database's clock; returns the row as it shall be, and a result. If
        that is true, what was ``found`` is remembered in the same transaction.
        """
        ...

    def due(self, judges: Collection[str], limit: int, pause_s: float) -> list[tuple[str, str]]:
        """Overdue scores of these judges, as (turn id, judge), oldest first; pushes them on by ``pause_s``."""
        ...

    def of_turn(self, turn_id: str) -> tuple[ScoreRow, ...]:
        """The turn's scores, by judge; :data:`~harness_worker.wire.MEMORY` is none."""
        ...


# --- the gate -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCall:
    """One (call, attempt) in one process. ``runner`` names the process: ``role@host/pid``, or ``inline/N`` inline."""

    turn_id: str
    call_id: str
    attempt: int
    runner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePass:
    """A call about to be dispatched, as the gate learns of it.

    Args:
        call_id: Which call.
        tool_use_id: The model's own id of it: another one by the same ``call_id`` is another call, which a journal that
            was set back has planned.
        attempt: Which attempt of it.
        remaining_ms: How long it may still be admitted and run: the turn's remaining time.
        ticket: What a read needs to run: the fields of :class:`Ticket`, as JSON. Empty for a write.
    """

    call_id: str
    tool_use_id: str
    attempt: int
    remaining_ms: int
    ticket: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAttempt:
    """A read that was sent, as a coordinator asks the gate for it; its parts are those of a :class:`GatePass`."""

    call_id: str
    tool_use_id: str
    attempt: int

    @classmethod
    def of(cls, call: Call) -> ReadAttempt:
        """The current attempt of a call."""
        return cls(call_id=call.call_id, tool_use_id=call.tool_use_id, attempt=call.attempt)


class Admission(StrEnum):
    """The gate's answer to a tool that wants to start."""

    OK = "ok"
    CLOSED = "closed"
    DONE = "done"
    DUPLICATE = "duplicate"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The answer, and for ``OK`` how long the call may run and its ticket."""

    answer: Admission
    remaining_ms: int = 0
    ticket: str = ""


class Gate(Protocol):
    """Decides whether a result may still be written. Every method is atomic; deadlines are remaining milliseconds."""

    def raise_fence(self, turn_id: str, fence: int) -> bool:
        """Let ``fence`` in: creates a missing gate, reopens for a higher fence; False if a higher one is there."""
        ...

    def settle(self, turn_id: str, fence: int, reads: Sequence[ReadAttempt], *, close: bool) -> list[SettledRead]:
        """Read the state of each attempt and close what is expired, lost or, with ``close``, everything.

        A read whose time is over is expired only if its process has beaten since; else it was lost on the way.
        """
        ...

    def open(self, turn_id: str, fence: int, passes: Sequence[GatePass]) -> bool:
        """Register attempts before they are sent; False if the gate is missing, closed or ahead of ``fence``."""
        ...

    def close(self, turn_id: str, fence: int, *, is_over: bool = False) -> None:
        """Shut the gate for every call, unless a higher fence holds it.

        ``is_over``: the journal has the turn's end, and what its calls were given and came to is forgotten.
        """
        ...

    def admit(self, turn_id: str, call_id: str, attempt: int, cap_ms: int, runner: str) -> Admitted:
        """Ask to start a read: at most one OK for each (call, attempt)."""
        ...

    def admits_write(self, turn_id: str, call_id: str, attempt: int) -> bool:
        """Whether a write may start: False only if the gate is closed or knows a higher attempt; missing is True."""
        ...

    def goes_on(self, run: RunningCall) -> bool:
        """Whether an admitted read that has waited since may still enter its body: not closed, superseded, flushed."""
        ...

    def complete(self, run: RunningCall, completion: str) -> bool:
        """Record a read's completion; False if it came too late: closed, superseded, expired or flushed."""
        ...

    def beat(self, runs: Sequence[RunningCall]) -> None:
        """Say that these reads are alive, or that one of them lived to see its time end."""
        ...

    def lose(self, run: RunningCall) -> None:
        """Say that this read's process is known to be dead; one that beat after its deadline stays expired."""
        ...


# --- locks ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LockName:
    """One resource of one tenant."""

    tenant: str
    name: str


class Locks(Protocol):
    """Lets one call at a time hold a resource, over all turns. They may be lost: no promise may rest on them alone.

    A holder is a call in a process, whatever its attempt.
    """

    def take(self, lock: LockName, run: RunningCall, keep_s: float) -> int | None:
        """The fencing number, above that of every earlier holder; ``None`` while another call holds the lock.

        ``keep_s`` is how long the call may last, in seconds. Taken again by its holder, it is the same.
        """
        ...

    def free(self, lock: LockName, run: RunningCall) -> bool:
        """Give it back; False if it was no longer held."""
        ...

    def beat(self, runs: Sequence[RunningCall]) -> None:
        """Say that these calls are alive, and hold what they hold; what is lost stays lost."""
        ...

    def lose(self, run: RunningCall) -> None:
        """Say that this call's process is known to be dead: what it held is free."""
        ...


# --- the model ------------------------------------------------------------------------------------------------------


def ignore(*_what: object) -> None:
    """A listener for what nobody wants to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model call.

    Args:
        model: As the agent names it.
        system: The system text.
        tools: The tools offered.
        messages: What was said, the session's earlier turns first, Anthropic-shaped.
        step: Number of assistant messages this turn has committed.
        metadata: The turn's metadata.
        timeout_s: How long the call may take.
        stop: Set when the call shall be given up at once.
        on_text: Told each piece of text as it is said, by the calling thread; never raises. A call that fails may
            have told some: nothing durable may be made of it.
        kind: What is asked for.
        think: How hard the model thinks.
        max_tokens: What may be said at most, in tokens; ``None``: what the client allows any reply.
    """

    model: str
    system: str
    tools: tuple[ToolSpec, ...]
    messages: tuple[Message, ...]
    step: int
    metadata: Mapping[str, str]
    timeout_s: float
    stop: StopSignal
    on_text: Callable[[str], None] = ignore
    kind: RequestKind = RequestKind.STEP
    think: ThinkLevel = "off"
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """What the model said: Anthropic content blocks, its stop reason, and what it cost."""

    content: tuple[dict[str, Any], ...]
    stop_reason: str
    usage: Usage


class ModelClient(Protocol):
    """Calls a model."""

    def complete(self, request: ModelRequest) -> ModelReply:
        """One reply.

        Raises:
            TransientError: Trying again may help; what was said until then counts for nothing.
            ModelError: The provider refused or failed for good.
            ScriptExhausted: A script has no such step.
            Stopped: ``request.stop`` was set; the connection is closed.
        """
        ...


# --- retrieval ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A text that fits a query: its place among the texts indexed, and how well it fits (above 0, higher is better)."""

    position: int
    score: float


class TextIndex(Protocol):
    """Texts made searchable; never changes, so that threads may share it."""

    def search(self, query: str, limit: int) -> tuple[Match, ...]:
        """At most ``limit`` texts that fit the query at all, best first, equals in the order of the texts."""
        ...


class Retriever(Protocol):
    """Ranks short texts by how well they fit words."""

    def index(self, texts: Sequence[str]) -> TextIndex:
        """Make texts searchable."""
        ...


class MemoryStore(Protocol):
    """What is remembered of users. It is added to by the commits that end turns."""

    def recall(self, tenant: str, scope: str, limit: int) -> tuple[Memory, ...]:
        """What is remembered within a scope of a tenant, each text once, newest first.

        Raises:
            TransientError: The database did not answer.
        """
        ...


class Vault(Protocol):
    """The documents of an agent."""

    def pack(self, query: str, limit: int) -> ContextPack:
        """The passages that fit a query, best first, at most ``limit``, and the vault's preferences.

        Raises:
            TransientError: The documents cannot be read now.
        """
        ...


# --- dispatch, artifacts, events ------------------------------------------------------------------------------------


class Dispatcher(Protocol):
    """Sends work. Nothing here waits for it; a lost message is found by the reconciler."""

    def advance(self, turn_id: str, priority: str, *, begins: bool = False) -> bool:
        """Ask some coordinator to look at the turn; ``begins``: it has not begun, and may wait for those that have.

        Returns whether it was sent.
        """
        ...

    def chord(self, turn: Turn, calls: Sequence[Call]) -> None:
        """Run reads side by side, then advance."""
        ...

    def chain(self, turn: Turn, calls: Sequence[Call]) -> None:
        """Run calls one after the other, then advance."""
        ...

    def judge(self, turn_id: str, judge: str) -> None:
        """Have some coordinator score a turn that is over."""
        ...

    def stop(self, turn_id: str) -> None:
        """Tell every worker to stop what it does for the turn: a model call, a running tool."""
        ...


class BlobStore(Protocol):
    """Keeps the bytes of artifacts."""

    def put(self, key: str, data: bytes) -> str:
        """Store ``data`` and return its URL."""
        ...

    def get(self, url: str) -> bytes:
        """The bytes.

        Raises:
            PermanentError: There is nothing at that URL.
        """
        ...

    def delete(self, url: str) -> None:
        """Remove the bytes, if they are there.

        Raises:
            PermanentError: It is no URL of this store.
        """
        ...


class EventSink(Protocol):
    """Carries committed events to those who watch; may lose them, SQL has them."""

    def send(self, events: Sequence[Event]) -> None:
        """Publish the events of one commit, which may be of several turns; never raises."""
        ...

    def hint(self, turn_id: str, kind: str, data: Mapping[str, Any]) -> None:
        """Show those who watch right now something without a ``seq``, never to be shown again; never raises."""
        ...


class Traces(Protocol):
    """Carries traces to whoever collects them."""

    def send(self, traces: Sequence[Trace]) -> None:
        """Send them; returns when they are taken, which may last some seconds.

        Raises:
            TransientError: They were not; the message says why.
        """
        ...

    def close(self) -> None:
        """Let go of connections; nothing is sent any more."""
        ...


class SoftDeadline(Protocol):
    """Stops a tool's body when its time is over."""

    def __call__(self, remaining_s: float, is_revoked: Callable[[], bool]) -> AbstractContextManager[None]:
        """Within the context, stop the body after ``remaining_s`` seconds, or when told to and ``is_revoked`` agrees.

        The context raises ``DeadlineReached`` if the body was stopped.
        """
        ...


class DeadlineReached(BaseException):
    """Raised inside a tool's body when its time is over; not an ``Exception``, so that few tools swallow it."""
