"""The rows the protocol works on, as frozen values. A field here is a column there (``schema.py``).

Times are seconds since the epoch, by the database's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from harness_worker.core.budget import BudgetLimits, Usage
from harness_worker.core.outcomes import DenialReason, ToolDenied, ToolOutcome
from harness_worker.core.recall import Recall
from harness_worker.core.registration.delegation import Delegation
from harness_worker.core.registration.effects import Effect
from harness_worker.core.sources.citations import Citation, Source
from harness_worker.wire import Approval, EventType, StopReason, Strategy, TurnStatus, fields_of


class CallStatus(StrEnum):
    """Where a call stands. ``pending``: dispatched, not known to have started."""

    PLANNED = "planned"
    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPreparation:
    """What a turn's model calls are sent with besides its history: made once, and sent again verbatim.

    Args:
        context: Texts that stand before the user's words, in order.
        prefix_hash: SHA-256 of what stands before the history, as last sent: system text, tools, a summary.
        bound_from: The first step that was asked for under that prefix; what was thought before it is not sent again.
        notes: Reflections, by the step that reads them; an empty one was made and says nothing.
        summary: What stands in the place of all that was said before the newest step; ``None``: nothing does.
        compacted_at: The step before which the summary was made.
        tried_at: The step before which a summary was last asked for, whatever came of it; -1: none was.
        prompt_tokens: How many tokens the last step's call was sent with; 0 if that is not known.
        prompt_chars: How many characters these were; 0 if that is not known.
        compact_at: At how many of them the history is compacted; ``None``: never.
        sources: The documents in the context, which may be cited.
        left_out: What should have been in it and could not be loaded, and why.
        offered: The names of the tools that the session is offered, in order, by agent; only of agents that select.
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
        """From its fields as JSON; one that was written by an older worker lacks some."""
        known = fields_of(cls, record)
        known["context"], known["left_out"] = tuple(known["context"]), tuple(known.get("left_out", ()))
        known["sources"] = tuple(Source(**fields_of(Source, source)) for source in known.get("sources", ()))
        known["offered"] = {agent: tuple(names) for agent, names in known.get("offered", {}).items()}
        return cls(**known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Park:
    """One wait of a turn for a person, until it is claimed again: its ``fence`` is that of the visit that parked it."""

    turn_id: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One user message worked to an answer.

    The driving fields: ``fence`` rises with each claim, ``owner`` holds the turn until
    ``lease_until``, ``wake_at`` is when somebody must look if nothing happens, ``wakes`` counts nudges that met a
    live lease. ``step`` counts committed assistant messages.
    ``number`` counts the session's turns from 1, in the order in which they were made; ``waits``: an earlier one had
    not ended by then; ``followed``: a later one waits for it.
    ``decision`` says of an ended turn how it came by its answer.
    ``parked_at`` is since when it, or all that it waits for, has waited for a person: that wait is not charged to
    ``deadline_at``; ``parked_below`` are the waits of turns below it of which its events tell, as far as they go on.
    ``recall`` is what later calls are judged by. ``citations`` are those of the answer.
    ``traceparent`` names the span of who asked. ``parent_id`` and ``parent_call_id`` name the call that this turn is,
    if an agent asked for it; ``delegated`` is what its children have used, those turns that its own calls are, as far
    as they were collected.
    A fork goes on from the step ``first_step`` of the turn ``forked_from``; its messages and calls of the steps before
    are copies.
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
        """What is counted against its budget: what it has used, and what others have used for it."""
        return self.used.plus(self.delegated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call of a turn's step.

    ``attempt`` rises only when the call is really run again; ``lease_until`` and ``runner`` belong to a running
    write, and a negative ``lease_until`` says that its process died, and when; ``was_coerced`` says that an argument
    had to be converted to fit; ``deadline_at`` is the turn's until the call is admitted. ``approval`` is ``None`` for a
    call that needs no person's word. A running write without ``worker`` waits for its lock. ``collected`` says its
    result message stands. ``idempotent`` is what its tool says of itself, and ``kind`` what it is; ``hooked``: hooks
    must be asked before it is sent. ``delegation``: it is no function but a turn of that agent.
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
        """Whether the gate decides its outcome; SQL decides every other call's."""
        return self.effect is Effect.READ_ONLY

    @property
    def is_delegated(self) -> bool:
        """Whether it is a turn of another agent; SQL alone knows of that."""
        return self.delegation is not None

    @property
    def runs_beside(self) -> bool:
        """Whether calls of its kind share waves, which are sent by themselves."""
        return self.is_read or self.is_delegated

    @property
    def was_sent(self) -> bool:
        """Whether it was ever dispatched, and so counted as a tool call."""
        return self.deadline_at is not None

    @property
    def is_open(self) -> bool:
        """Dispatched and not ended."""
        return self.status in (CallStatus.PENDING, CallStatus.RUNNING)

    def denied(self, reason: DenialReason, details: str) -> ToolDenied:
        """The outcome of a call that is not run; ``details`` tell the model why."""
        return ToolDenied(call_id=self.call_id, tool_name=self.tool, reason=reason, details=details)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of the history, Anthropic-shaped; ``position`` counts from 0 in its turn; -1 is in no journal."""

    role: str
    content: Any
    position: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDraft:
    """A durable event before its commit gives it a ``seq``."""

    type: EventType
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A durable event as its commit made it; ``at`` in seconds since the epoch."""

    turn_id: str
    seq: int
    type: str
    at: float
    data: Mapping[str, Any]
