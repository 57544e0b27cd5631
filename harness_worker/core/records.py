"""The rows the protocol works on, as frozen values. Each field here is a column in ``schema.py``.

Times are seconds since the epoch, by the database's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from harness_worker.core.budget import BudgetLimits, Usage
from harness_worker.core.outcomes import DenialReason, ToolDenied, ToolFailure, ToolOutcome
from harness_worker.core.recall import Recall
from harness_worker.core.registration.delegation import Delegation
from harness_worker.core.registration.effects import Effect
from harness_worker.core.sources.citations import Citation, Source
from harness_worker.wire import Approval, EventType, StopReason, Strategy, TurnStatus, fields_of


class CallStatus(StrEnum):
    """How far a call has come. ``pending``: dispatched, but not known to have started."""

    PLANNED = "planned"
    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPreparation:
    """What a turn's model calls are sent with besides its history: made once, and repeated verbatim in each call.

    Args:
        context: Texts placed before the user's words, in order.
        prefix_hash: SHA-256 of what precedes the history, as last sent: system text, tools, a summary.
        bound_from: The first step that was asked for under that prefix; thinking from before it is not sent again.
        notes: Reflections, by the step that reads them; an empty text is a reflection that yielded nothing.
        summary: What replaces everything said before the newest step; ``None``: nothing is replaced.
        compacted_at: The step before which the summary was made.
        tried_at: The step before which a summary was last requested, successfully or not; -1: none was.
        prompt_tokens: The number of tokens sent in the last step's model call; 0 if unknown.
        prompt_chars: The number of characters in those tokens; 0 if unknown.
        compact_at: The number of tokens at which the history is compacted; ``None``: never.
        sources: The documents in the context, which may be cited.
        left_out: What belonged in the context but could not be loaded, and why.
        offered: By agent, the names of the tools that the session is offered, in order; only for agents that select.
    """

    context: tuple[str, ...]
    prefix_hash: str
    bound_from: int = 0
    notes: Mapping[str, str] = field(default_factory=dict[str, str])
    summary: str | None = None
    compacted_at: int = 0
    tried_at: int = -1
    prompt_tokens: int = 0
    prompt_chars: int = 0
    compact_at: int | None = None
    sources: tuple[Source, ...] = ()
    left_out: tuple[str, ...] = ()
    offered: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> TurnPreparation:
        """From its fields as JSON; a record written by an older worker lacks some of them."""
        known = fields_of(cls, record)
        known["context"], known["left_out"] = tuple(known["context"]), tuple(known.get("left_out", ()))
        known["sources"] = tuple(Source(**fields_of(Source, source)) for source in known.get("sources", ()))
        known["offered"] = {agent: tuple(names) for agent, names in known.get("offered", {}).items()}
        return cls(**known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What later prompts need of a history even if a summary replaces it.

    Args:
        tools: The names of the tools that the history called, each once, in order of first use. A reference to an
            artifact counts as a use of the artifact reader.
        has_artifact: Whether the history refers to an artifact.
        sources: The documents that its turns were given, each once.
    """

    tools: tuple[str, ...] = ()
    has_artifact: bool = False
    sources: tuple[Source, ...] = ()

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Carried:
        """From its fields as JSON."""
        known = fields_of(cls, record)
        known["tools"] = tuple(known["tools"])
        known["sources"] = tuple(Source(**fields_of(Source, source)) for source in known["sources"])
        return cls(**known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Park:
    """One wait of a turn for a person, until its next claim; ``fence`` is that of the visit that parked it."""

    turn_id: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One user message and the work that leads to its answer.

    Driving: ``fence`` rises with each claim; ``owner`` holds the turn until ``lease_until``; ``wake_at`` is when
    somebody must look at it if nothing happens before; ``wakes`` counts the nudges that met a live lease. ``step``
    counts committed assistant messages.

    Session: ``number`` counts the session's turns from 1, in the order of their creation. ``waits``: its time starts
    only when it is claimed, because an earlier turn of its session had not ended, its tenant's share was used up, or it
    came in a batch. ``followed``: a later turn of the session waits for it.

    Waits for people: ``parked_at`` is the time since which the turn, or all that it waits for, has waited for a person.
    That wait is not charged to ``deadline_at``. ``parked_below`` are the waits of turns below it that its events have
    reported and that still last.

    Children: if the turn is an agent's call, ``parent_id`` and ``parent_call_id`` name that call. ``delegated`` is what
    the turn's own children have used, as far as they were collected.

    Forks: a fork continues from step ``first_step`` of the turn ``forked_from``; its messages and calls of earlier
    steps are copies.

    ``carried`` is what prompts still need of the history up to a summary that this turn made. ``None``: it made none,
    or an older worker did.

    ``recall`` is what later calls are judged by. ``citations`` are those in the answer. ``decision`` says how an ended
    turn came by its answer. ``traceparent`` names the caller's span.
    """

    id: str
    tenant: str
    session_id: str
    agent: str
    status: TurnStatus
    input: str
    priority: str
    budget: BudgetLimits
    number: int = 1
    waits: bool = False
    followed: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    parallel: bool | None = None
    system_prompt_override: str | None = None
    skill_context: str | None = None
    traceparent: str | None = None
    forked_from: str | None = None
    first_step: int = 0
    parent_id: str | None = None
    parent_call_id: str | None = None
    preparation: TurnPreparation | None = None
    carried: Carried | None = None
    stop_reason: StopReason | None = None
    output_text: str = ""
    citations: tuple[Citation, ...] = ()
    error: Mapping[str, str] | None = None
    decision: Strategy | None = None
    used: Usage = field(default_factory=Usage)
    delegated: Usage = field(default_factory=Usage)
    recall: Recall = field(default_factory=Recall)
    step: int = 0
    last_seq: int = 0
    message_count: int = 0
    cancel_requested: bool = False
    deadline_at: float = 0.0
    fence: int = 0
    owner: str | None = None
    lease_until: float | None = None
    visit_deadline: float | None = None
    parked_at: float | None = None
    parked_below: tuple[Park, ...] = ()
    wake_at: float | None = None
    wakes: int = 0
    looks: int = 0
    created_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None

    @property
    def spent(self) -> Usage:
        """What counts against its budget: its own use and that of its children."""
        return self.used.plus(self.delegated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call of a turn's step.

    ``attempt`` rises only when the call is really run again. ``lease_until`` and ``runner`` belong to a running write;
    a negative ``lease_until`` says that its process died, and when. A running write without ``worker`` waits for its
    lock. ``deadline_at`` is the turn's until the call is admitted. ``was_coerced`` says that an argument had to be
    converted to fit. ``approval`` is ``None`` if the call needs no person's approval. ``hooked`` says that hooks must
    be asked before it is sent. ``collected`` says that its result message was appended. ``idempotent`` and ``kind``
    are as its tool declares them. ``delegation`` is set if the call is not a function but a turn of another agent.
    """

    turn_id: str
    step: int
    position: int
    tool_use_id: str
    tool: str
    effect: Effect | None
    arguments: Mapping[str, Any]
    wave: int
    retry_safe: bool
    timeout_s: float
    queue: str
    idempotency_key: str
    kind: str | None = None
    was_coerced: bool = False
    approval: Approval | None = None
    idempotent: bool = False
    hooked: bool = False
    delegation: Delegation | None = None
    status: CallStatus = CallStatus.PLANNED
    attempt: int = 1
    lease_until: float | None = None
    runner: str | None = None
    deadline_at: float | None = None
    outcome: ToolOutcome | None = None
    collected: bool = False
    worker: str | None = None
    started_at: float | None = None
    finished_at: float | None = None

    @property
    def call_id(self) -> str:
        """``"{step}.{position}"``."""
        return f"{self.step}.{self.position}"

    @property
    def is_read(self) -> bool:
        """Whether the gate decides its outcome; SQL decides those of all other calls."""
        return self.effect is Effect.READ_ONLY

    @property
    def is_delegated(self) -> bool:
        """Whether it is a turn of another agent; the gate knows nothing of such calls."""
        return self.delegation is not None

    @property
    def runs_beside(self) -> bool:
        """Whether it may share a wave with others of its kind; such a wave is sent on its own."""
        return self.is_read or self.is_delegated

    @property
    def was_sent(self) -> bool:
        """Whether it was ever dispatched, and so counted as a tool call."""
        return self.deadline_at is not None

    @property
    def is_open(self) -> bool:
        """Whether it was dispatched and has not ended."""
        return self.status in (CallStatus.PENDING, CallStatus.RUNNING)

    @property
    def answered(self) -> ToolOutcome | None:
        """The outcome that a person's answer has given a call that did not run; it stands, whatever comes."""
        return self.outcome if self.approval is not None and self.approval.is_resolved else None

    def denied(self, reason: DenialReason, details: str) -> ToolDenied:
        """The outcome of a call that is not run; ``details`` tell the model why."""
        return ToolDenied(call_id=self.call_id, tool_name=self.tool, reason=reason, details=details)

    def failed(self, error: str, *, elapsed_ms: float = 0.0, in_doubt: bool = False) -> ToolFailure:
        """The outcome of a call that the harness, not its tool, says has failed; the model may ask for it again."""
        return ToolFailure(
            call_id=self.call_id, tool_name=self.tool, error=error, elapsed_ms=elapsed_ms, in_doubt=in_doubt
        )


def in_order(calls: Iterable[Call]) -> list[Call]:
    """The calls of a turn in program order: as its model asked for them."""
    return sorted(calls, key=lambda call: (call.step, call.position))


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of the history, Anthropic-shaped. ``position`` counts from 0 in its turn; -1: not in the journal."""

    role: str
    content: Any
    position: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDraft:
    """A durable event whose commit has not yet given it a ``seq``."""

    type: EventType
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A durable event as it was committed; ``at`` in seconds since the epoch."""

    turn_id: str
    seq: int
    type: str
    at: float
    data: Mapping[str, Any]
