"""What the application needs from the outside: one Protocol for each collaborator.

Protocols that store, decide or find something have one contract suite each, in ``tests/contract``, which every
implementation must pass. Implementations of ``Clock``, ``StopSignal``, ``Dispatcher``, ``Traces`` and ``SoftDeadline``
are tested separately.
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
from harness_worker.core.prompting.past import PastTurn
from harness_worker.core.prompting.prompt import RequestKind
from harness_worker.core.reads import SettledRead
from harness_worker.core.records import Call, Event, Message, Turn
from harness_worker.core.registration.thinking import ThinkLevel
from harness_worker.core.registration.tools import AgentSpec, ToolSpec
from harness_worker.core.scoring.scores import ScoreRow
from harness_worker.core.sources.context_pack import ContextPack
from harness_worker.core.tracing.trace import Trace
from harness_worker.wire import HintType

T = TypeVar("T")


# --- time -----------------------------------------------------------------------------------------------------------


class Clock(Protocol):
    """Monotonic time of this process."""

    def monotonic(self) -> float:
        """Seconds since some point in the past, including those in which the host was suspended."""
        ...

    def wait(self, seconds: float) -> None:
        """Return after ``seconds``."""
        ...


class StopSignal(Protocol):
    """Says whether work under way must stop; ``threading.Event`` is one."""

    def is_set(self) -> bool:
        """Whether the work must stop."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to ``timeout`` seconds for the signal, and return whether it came."""
        ...


# --- the store ------------------------------------------------------------------------------------------------------


class OverdueTurn(NamedTuple):
    """A turn that needs a look and that nobody holds.

    Args:
        id: The turn's id.
        priority: Selects the queue of its wake-ups.
        is_queued: Whether it has not started yet.
        since: When the look was due, in seconds since the epoch.
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
    """A turn that waits for another one to end or to make room; ``priority`` selects the queue of its wake-ups."""

    id: str
    priority: str


class HeldTurn(NamedTuple):
    """A turn that a visit holds, with the visit's owner and fence."""

    turn_id: str
    owner: str
    fence: int


class TurnStore(Protocol):
    """The only truth. Each method is one transaction, and raises ``TransientError`` if the database does not answer."""

    def transact(self, turn_id: str, decide: Callable[[Snapshot], Decision[T]], *, follows: bool = False) -> T | None:
        """Read the turn, call ``decide``, write its decision, commit, then send the events; atomic for each turn.

        ``decide`` is pure and may be called again. Returns its result, or ``None`` if there is no such turn.

        Args:
            turn_id: The turn's id.
            decide: The rule.
            follows: This process has just written the turn, and most likely nobody has since. The store may then decide
                on the state that it wrote, provided that it commits only if that is still current.
        """
        ...

    def insert_turn(self, turn: Turn) -> None:
        """Add a queued turn at the end of its session, with its user message and the event ``turn.queued``.

        The database sets its times and its place in the session: ``turn.deadline_at`` is ignored and becomes the
        database's current time plus the budget's ``timeout_s``; ``number`` and ``waits`` are ignored, too.
        """
        ...

    def load(self, turn_id: str) -> LoadedTurn | None:
        """The turn as it is now, read without a lock."""
        ...

    def history(self, turn_id: str) -> tuple[Message, ...]:
        """The turn's messages in order."""
        ...

    def events_of(self, turn_id: str) -> tuple[Event, ...]:
        """The turn's events in order."""
        ...

    def past(self, turn: Turn) -> tuple[PastTurn, ...]:
        """The earlier turns of the session that have ended, in order, preceded by those that it was forked with.

        Those before the last one with ``carried`` are left out, because no prompt needs them.
        """
        ...

    def next_of_session(self, turn: Turn) -> WaitingTurn | None:
        """The next turn of the same session that has not ended, once ``turn`` has."""
        ...

    def next_of_tenant(self, turn: Turn) -> list[WaitingTurn]:
        """Turns of the same tenant to wake because ``turn`` has made room.

        Interactive turns come first, then the oldest. Empty, without a query, if the number of a tenant's running turns
        is not limited.
        """
        ...

    def beat_turns(self, visits: Sequence[HeldTurn], ttl_s: float) -> frozenset[HeldTurn]:
        """Prolong the leases of visits that still hold their turns, but none past its ``visit_deadline``.

        Returns the visits that must give up, because the turn is to be cancelled or the visit no longer holds it.
        Locked rows are left alone.
        """
        ...

    def beat_calls(self, runs: Sequence[RunningCall], ttl_s: float) -> None:
        """Prolong the leases of running writes. Locked rows are left alone: a locked row is not a lost call.

        A late heartbeat does not revive a process that is known to be dead.
        """
        ...

    def lose_call(self, run: RunningCall) -> str | None:
        """End the lease of a running write whose process is known to be dead.

        Gives up soon if the database does not answer, because the lease also ends by itself. Returns the priority of
        the turn, so that it can be woken; ``None`` if there is no such turn.
        """
        ...

    def overdue(self, limit: int, backoff_s: float) -> list[OverdueTurn]:
        """Turns that need a look and that nobody holds, the oldest first; puts off their ``wake_at``.

        It is put off by ``backoff_s``, or by a queued turn's age if that is more: by at most a minute, or ten minutes
        for a turn of the priority ``batch``.
        """
        ...

    def give_back(self, taken: Sequence[OverdueTurn]) -> None:
        """Make turns returned by :meth:`overdue` overdue again, as of before, because no wake-up could be sent."""
        ...

    def ping(self) -> None:
        """Find out whether the database answers and has its tables."""
        ...


class ExpiredArtifact(NamedTuple):
    """An artifact that expired at ``expires_at`` (seconds since the epoch), and the URL of its bytes."""

    expires_at: float
    id: str
    url: str


class Artifacts(Protocol):
    """Finds artifacts. The commit that ends a call adds their rows; a ``BlobStore`` keeps their bytes.

    Every method is one transaction, and raises ``TransientError`` if the database does not answer.
    """

    def url_of(self, artifact_id: str, *, tenant: str, session_id: str) -> str | None:
        """The URL of an artifact's bytes, if the artifact belongs to the session or to one that it was forked from.

        ``None`` if there is no such artifact, or no longer.
        """
        ...

    def expired(self, limit: int, *, after: ExpiredArtifact | None = None) -> list[ExpiredArtifact]:
        """Expired artifacts in the order of their expiry, those that come after ``after``."""
        ...

    def forget(self, artifact_ids: Sequence[str]) -> None:
        """Remove the rows of artifacts."""
        ...


class Catalogue(Protocol):
    """The agents that coordinators publish, for whoever creates turns.

    Every method is one transaction, and raises ``TransientError`` if the database does not answer.
    """

    def publish(self, app: str, agents: Iterable[AgentSpec]) -> None:
        """Publish agents; an agent of the same name from another app or version is replaced."""
        ...

    def renew(self, app: str, agents: Iterable[AgentSpec]) -> None:
        """Keep agents published: add missing ones, and remove other agents of ``app`` that nobody keeps any more.

        A name that another version or app has published is replaced only once nobody keeps that one, either.
        """
        ...

    def caps_of(self, agent: str) -> BudgetLimits | None:
        """The highest limits of this agent's turns, as published; ``None`` if the agent is not published."""
        ...


class Scores(Protocol):
    """What judges, and the models that look for memories, say about ended turns; the commit that ends a turn adds rows.

    Every method is one transaction, and raises ``TransientError`` if the database does not answer.
    """

    def change(
        self,
        turn_id: str,
        judge: str,
        rule: Callable[[ScoreRow, float], tuple[ScoreRow, T]],
        found: Remembered | None = None,
    ) -> T | None:
        """Lock the row, apply ``rule``, and write the new row; ``None`` if there is no such row.

        ``rule`` is pure. It is given the row and the database's clock, and returns the new row and a result. If the
        result is true, what was ``found`` is remembered in the same transaction.
        """
        ...

    def due(self, judges: Collection[str], limit: int, pause_s: float) -> list[tuple[str, str]]:
        """Overdue scores of these judges, as (turn id, judge), oldest first; puts them off by ``pause_s``."""
        ...


# --- the gate -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCall:
    """One (call, attempt) in one process. ``runner`` names the process: ``role@host/pid``, or ``inline/N`` inline."""

    turn_id: str
    call_id: str
    attempt: int
    runner: str

    def __str__(self) -> str:
        return f"call {self.call_id} of turn {self.turn_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePass:
    """A call about to be dispatched, as it is registered at the gate.

    Args:
        call_id: The call.
        tool_use_id: The model's own id for it. If it differs under the same ``call_id``, it is another call, planned
            after the database was restored from a backup.
        attempt: The attempt's number.
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
    """Identifies a read that was sent, to ask the gate about it; the fields are those of a :class:`GatePass`."""

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
    """The answer, and with ``OK``, how long the call may run, and its ticket."""

    answer: Admission
    remaining_ms: int = 0
    ticket: str = ""


class Gate(Protocol):
    """Decides whether a read's result may still be written. Deadlines are milliseconds left.

    Every method is atomic, and raises ``TransientError`` if the gate does not answer.
    """

    def raise_fence(self, turn_id: str, fence: int) -> bool:
        """Raise the gate to ``fence``, creating or reopening it if need be; ``False`` if it knows a higher fence."""
        ...

    def settle(self, turn_id: str, fence: int, reads: Sequence[ReadAttempt], *, close: bool) -> list[SettledRead]:
        """Read the state of each attempt, and close those that are expired or lost; with ``close``, close all.

        A read whose time is over is expired only if its process has sent a heartbeat since then; else it is lost.
        """
        ...

    def open(self, turn_id: str, fence: int, passes: Sequence[GatePass]) -> bool:
        """Register attempts before they are sent; ``False`` if the gate is missing, closed or above ``fence``."""
        ...

    def close(self, turn_id: str, fence: int, *, is_over: bool = False) -> None:
        """Close the gate for every call, unless it knows a higher fence.

        ``is_over``: the turn's end is in the journal, so that the calls' tickets and completions can be forgotten.
        """
        ...

    def admit(self, run: RunningCall, cap_ms: int) -> Admitted:
        """Ask to start a read; at most one ``OK`` is given for each (call, attempt)."""
        ...

    def admits_write(self, run: RunningCall) -> bool:
        """Whether a write may start: ``False`` only if the gate exists, and is closed or knows a higher attempt."""
        ...

    def goes_on(self, run: RunningCall) -> bool:
        """Whether an admitted read that has waited may still enter its body: not if closed, superseded or flushed."""
        ...

    def complete(self, run: RunningCall, completion: str) -> bool:
        """Record a read's completion; ``False`` if it is too late: closed, superseded, expired or flushed."""
        ...

    def beat(self, runs: Sequence[RunningCall]) -> None:
        """Report that the processes of these reads are alive; also of a read whose time has just ended."""
        ...

    def lose(self, run: RunningCall) -> None:
        """Report that this read's process is dead; a read with a heartbeat after its deadline stays expired."""
        ...


# --- locks ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LockName:
    """The name of a lock: one resource of one tenant."""

    tenant: str
    name: str


class Locks(Protocol):
    """Lets one call at a time hold a resource, over all turns. Locks may be lost, so no promise may rest on them alone.

    A holder is a call in a process, whatever its attempt. Every method raises ``TransientError`` if there is no answer.
    """

    def take(self, lock: LockName, run: RunningCall, keep_s: float) -> int | None:
        """Take the lock: gives a number above that of every earlier holder, or ``None`` while another call holds it.

        ``keep_s`` is how long the call may last, in seconds. A holder that takes it again gets the same number.
        """
        ...

    def free(self, lock: LockName, run: RunningCall) -> bool:
        """Release the lock; ``False`` if it was no longer held."""
        ...

    def beat(self, runs: Sequence[RunningCall]) -> None:
        """Report that these calls are alive and keep their locks; a lock that is lost stays lost."""
        ...

    def lose(self, run: RunningCall) -> None:
        """Report that this call's process is dead, which frees its locks."""
        ...


# --- the model ------------------------------------------------------------------------------------------------------


def ignore(*_what: object) -> None:
    """A listener that does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model call.

    Args:
        model: The model's name, as the agent gives it.
        system: The system text.
        tools: The tools offered.
        messages: The messages, the session's earlier turns first, Anthropic-shaped.
        step: The number of assistant messages that this turn has committed.
        metadata: The turn's metadata.
        timeout_s: How long the call may take, in seconds.
        stop: Set when the call must be given up at once.
        on_text: Called with each piece of text as it arrives, on the calling thread; never raises. It may also have
            been called by a call that fails, so nothing durable may be made of the text.
        kind: What the model is asked for.
        think: How hard the model thinks.
        max_tokens: The reply's maximum length in tokens; ``None``: the client's own limit.
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
            TransientError: Trying again may help; what was said so far is void.
            ModelError: The provider refused or failed for good.
            ScriptExhausted: The script has no such step.
            Stopped: ``request.stop`` was set; the connection is closed.
        """
        ...


# --- retrieval ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A text that fits a query: its place among the indexed texts, and how well it fits (above 0, higher is better)."""

    position: int
    score: float


class TextIndex(Protocol):
    """Searchable texts; never changes, so that threads may share it."""

    def search(self, query: str, limit: int) -> tuple[Match, ...]:
        """At most ``limit`` texts that fit the query at all, best first; equals in the order they were given in.

        Of a very long query, only the beginning and the end are searched for.
        """
        ...


class Retriever(Protocol):
    """Ranks short texts by how well they fit words."""

    def index(self, texts: Sequence[str]) -> TextIndex:
        """Make texts searchable."""
        ...


class MemoryStore(Protocol):
    """What is remembered about users; the commits that end turns add to it."""

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
        """Ask some coordinator to look at the turn; returns whether the message was sent.

        ``begins`` says that the turn has not started yet, so that it may wait for turns that have.
        """
        ...

    def chord(self, turn: Turn, calls: Sequence[Call]) -> None:
        """Run reads side by side, then advance."""
        ...

    def chain(self, turn: Turn, calls: Sequence[Call]) -> None:
        """Run calls one after the other, then advance."""
        ...

    def judge(self, turn_id: str, judge: str) -> None:
        """Have some coordinator score an ended turn."""
        ...

    def stop(self, turn_id: str) -> None:
        """Tell every worker to stop its work for the turn: a model call, a running tool."""
        ...


class BlobStore(Protocol):
    """Keeps the bytes of artifacts. Every method raises ``TransientError`` if the store does not answer."""

    def put(self, key: str, data: bytes) -> str:
        """Store ``data`` and return its URL."""
        ...

    def get(self, url: str) -> bytes:
        """The bytes.

        Raises:
            PermanentError: There are no bytes at that URL.
        """
        ...

    def delete(self, url: str) -> None:
        """Remove the bytes, if they exist.

        Raises:
            PermanentError: The URL is not one of this store.
        """
        ...


class EventSink(Protocol):
    """Carries committed events to live readers; may lose them, because SQL has them."""

    def send(self, events: Sequence[Event]) -> None:
        """Publish the events of one commit, if it has any, which may be of several turns; never raises."""
        ...

    def hint(self, turn_id: str, kind: HintType, data: Mapping[str, Any]) -> None:
        """Show current live readers something that has no ``seq`` and is never replayed; never raises."""
        ...


class Traces(Protocol):
    """Carries traces to a collector."""

    def send(self, traces: Sequence[Trace]) -> None:
        """Send traces; returns once they are accepted, which may take some seconds.

        Raises:
            TransientError: They were not accepted; the message says why.
        """
        ...

    def close(self) -> None:
        """Close connections; nothing can be sent afterwards."""
        ...


class SoftDeadline(Protocol):
    """Stops a tool's body when its time is over."""

    def __call__(self, remaining_s: float, is_revoked: Callable[[], bool]) -> AbstractContextManager[None]:
        """Within the context, stop the body after ``remaining_s`` seconds, or on a signal if ``is_revoked`` agrees.

        The context raises ``DeadlineReached`` if the body was stopped.
        """
        ...


class DeadlineReached(BaseException):
    """Raised by the context of a :class:`SoftDeadline` that has stopped its body: no error of the tool's."""
