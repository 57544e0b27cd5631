"""What crosses process borders: names of tasks and queues, statuses, messages, formats of ids and times.

Shared by the worker and the gateway; knows neither.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_type_hints
from uuid import UUID, uuid5

from harness_worker.errors import NewerWire, WireError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

JsonObject: TypeAlias = dict[str, Any]

ADVANCE_TASK: Final = "turn.advance"
JUDGE_TASK: Final = "turn.judge"
SUBMIT_TASK: Final = "turn.submit"
MEMORY: Final = ":memory"
"""Stands in a judge's place for what a model finds worth remembering from a turn. No judge's name has a colon."""
TOOL_TASK_PREFIX: Final = "tool."
STOP_COMMAND: Final = "stop_turn"
"""The remote-control command that tells every worker to stop its work for a turn; argument ``turn_id``."""

DRAIN_COMMAND: Final = "drain"
"""The remote-control command that asks whether a worker is draining. With ``begin``, the worker takes no more work,
finishes what it has, and exits."""

DEFAULT_TOOL_QUEUE: Final = "tools"

READ_ARTIFACT: Final = "read_artifact"
GET_CONTEXT_PACK: Final = "get_context_pack"
OWN_TOOLS: Final = frozenset({READ_ARTIFACT, GET_CONTEXT_PACK})
"""The harness's own tools, which agents are offered though no catalogue lists them."""

TURN_ID: Final = re.compile(r"(?!\.+\Z)[A-Za-z0-9_.-]{1,64}")
"""The form of a turn's id that was chosen outside the harness; not dots alone, which have a meaning in paths."""

TRACEPARENT: Final = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
"""The header by which a caller names its span: trace, span, flags (W3C Trace Context)."""

DEFAULT_TENANT: Final = "default"
"""The tenant of turns that were not posted with an API key."""

EVENT_STREAM: Final = "harness:events"
"""One Redis stream for every turn's live events; each gateway process reads it once."""

IDEMPOTENCY_KEY_S: Final = 86_400.0
"""How long the ``Idempotency-Key`` of a post is remembered."""

LONGEST_WAIT_S: Final = 60.0
"""The longest that a post waits for its turn's end (``Prefer: wait``), in seconds."""

COUNTERS: Final = "harness:counters"
"""A Redis hash of what workers count outside of transactions; if it is lost, counting starts again from zero."""

QUEUE_LOOK_S: Final = 30.0
"""How often a turn that waits for its session or tenant is looked at, should the wake-up from another's end be lost."""

LATE_RESULTS: Final = "late_results"
HOOK_FAILURES: Final = "hook_failures"
FINALIZER_FAILURES: Final = "finalizer_failures"
TRACES_LOST: Final = "traces_lost"

LATER: Final = 9
"""The lowest priority of messages in Redis, of those that start turns of batches: taken when there are no others."""

BEHIND: Final = 3
"""The priority of messages in Redis of calls that others may overtake."""

BROKER_TRANSPORT_OPTIONS: Final[Mapping[str, Any]] = {"priority_steps": [0, 3, 6, LATER]}
"""What every Celery client of a broker must agree on: the lists that make up a queue in Redis. Messages of turns that
go on are in the first, calls of a batch's turns in the second, and what starts turns of batches in the last. They are
kombu's defaults, so that a producer's message of any priority is in one of them."""


class Priority(StrEnum):
    """Who waits for a turn; each has a queue of its own."""

    INTERACTIVE = "interactive"
    BATCH = "batch"


class TurnStatus(StrEnum):
    """A turn's status, as clients see it."""

    QUEUED = "queued"
    RUNNING = "running"
    REQUIRES_ACTION = "requires_action"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing about the turn changes any more."""
        return self in FINAL_STATUSES


FINAL_STATUSES: Final = frozenset(
    {TurnStatus.COMPLETED, TurnStatus.INCOMPLETE, TurnStatus.FAILED, TurnStatus.CANCELLED}
)


def has_ended(turn: Mapping[str, Any]) -> bool:
    """Whether nothing about a turn, shaped as in the HTTP API, changes any more."""
    return turn["status"] in FINAL_STATUSES


EventType: TypeAlias = Literal[
    "turn.queued",
    "turn.started",
    "turn.redelivered",
    "turn.requires_action",
    "turn.completed",
    "turn.incomplete",
    "turn.failed",
    "turn.cancelled",
    "step.started",
    "model.completed",
    "wave.started",
    "tool.completed",
    "tool.late",
    "wave.completed",
    "subagent.started",
    "subagent.requires_action",
    "subagent.finished",
    "step.completed",
    "approval.requested",
    "approval.resolved",
    "budget.warning",
    "reflection.completed",
    "compaction.completed",
]
"""The types of durable events (docs/reference/events.md)."""

HintType: TypeAlias = Literal["model.delta", "tool.started"]
"""The types of hints, which reach only readers that are connected at the moment."""

TERMINAL_EVENTS: Final = frozenset(f"turn.{status}" for status in FINAL_STATUSES)
"""The types of a turn's last event."""

WAITING_EVENTS: Final = frozenset({"turn.requires_action", "subagent.requires_action"})
"""The types of events that say that a turn, or one below it, waits for a person."""


class StopReason(StrEnum):
    """Why a turn ended."""

    END_TURN = "end_turn"
    MAX_STEPS = "max_steps"
    DEADLINE = "deadline"
    BUDGET = "budget"
    MAX_TOKENS = "max_tokens"
    REFUSAL = "refusal"
    NO_PROGRESS = "no_progress"
    MODEL_ERROR = "model_error"
    SCRIPT_EXHAUSTED = "script_exhausted"
    INTERNAL = "internal"
    CANCELLED = "cancelled"


class Strategy(StrEnum):
    """How a turn came by its answer (docs/reference/decisions.md); a Turn's ``decision``."""

    DIRECT_ANSWER = "direct_answer"
    RETRIEVAL_AUGMENTED = "retrieval_augmented"
    WEB_AUGMENTED = "web_augmented"
    TOOL_ASSISTED = "tool_assisted"


def fields_of(kind: type[Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the dataclass ``kind`` in a JSON record; fields that a later version added are left out.

    During a deployment, processes of two versions may drive one turn. So every new field has a default, and may be lost
    again when the older version rewrites the record.
    """
    names = _names(kind)
    return {name: value for name, value in record.items() if name in names}


def as_mapping(value: DataclassInstance) -> dict[str, Any]:
    """A dataclass's fields by name. Unlike ``asdict`` it copies no values; use it where nobody changes them."""
    return {name: getattr(value, name) for name in _names(type(value))}


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


MAX_APPROVAL_S: Final = 2_592_000.0
"""The longest that a person may be given to answer, in seconds: 30 days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """The approval of a call that needs one; its fields are the JSON of the column ``approval``.

    Workers ask and act; only the gateway records a person's answer.

    Args:
        expires_at: Until when it may be answered, in seconds since the epoch; ``None``: not asked yet.
        decision: The person's decision.
        reason: The person's reason.
        arguments: Arguments to run the call with instead of the model's; not checked yet.
        is_resolved: Whether a worker has acted on the answer, or on its absence.
        timeout_s: How long a person may take once asked, in seconds; ``None``: as the setting says.
    """

    expires_at: float | None = None
    decision: Literal["approve", "deny"] | None = None
    reason: str | None = None
    arguments: Mapping[str, Any] | None = None
    is_resolved: bool = False
    timeout_s: float | None = None

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Approval:
        """From its fields as JSON."""
        return cls(**fields_of(cls, record))

    @property
    def is_waiting(self) -> bool:
        """Whether the question was asked and has no answer."""
        return self.expires_at is not None and self.decision is None and not self.is_resolved


DEFAULT_SCRIPT: Final = "default"
"""The script of a turn whose metadata name none."""


def turn_queue(priority: str) -> str:
    """The queue of a turn's wake-ups."""
    return f"turns.{priority}"


def message_priority(priority: str, *, begins: bool, broker_url: str) -> int:
    """The priority of a wake-up's message: one that starts a turn of a batch waits for turns that have started.

    Otherwise each of thousands of turns would take its first step before any took its second, and none would end in
    time.
    """
    return _of_a_batch(LATER if begins else 0, priority, broker_url)


def call_priority(priority: str, *, broker_url: str) -> int:
    """The priority of a call's message: a worker takes a call of a batch's turn when no other call waits for it."""
    return _of_a_batch(BEHIND, priority, broker_url)


def _of_a_batch(number: int, priority: str, broker_url: str) -> int:
    """A priority of turns of batches in Redis, where 0 comes first; some queues of RabbitMQ put the greatest first."""
    return number if priority == Priority.BATCH and broker_url.startswith("redis") else 0


def tool_task(name: str) -> str:
    """The Celery task name of a tool."""
    return TOOL_TASK_PREFIX + name


def artifact_key(turn_id: str, artifact_id: str) -> str:
    """The path of an artifact's bytes, relative to the root of the artifact store."""
    return f"{turn_id}/{artifact_id}"


_CHILDREN: Final = UUID("6f0c2a4e-5d0b-4f0e-9a57-3b1f6a3c9d21")


def child_turn_id(turn_id: str, call_id: str) -> str:
    """The id of the turn of an agent's call; it is derived from the call, so that a call never has two turns."""
    return str(uuid5(_CHILDREN, f"{turn_id}/{call_id}"))


def rfc3339(at: float | None) -> str | None:
    """Seconds since the epoch as RFC 3339 UTC to the microsecond."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


TOOL_MESSAGE_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMessage:
    """The message of a tool task: ids, never payloads. Its fields are the task's keyword arguments.

    Args:
        turn_id: The turn.
        call_id: The call.
        attempt: The attempt's number.
        read: Whether the gate decides the call's outcome; otherwise SQL does.
        tenant: The turn's tenant.
        v: The version of this shape.
    """

    turn_id: str
    call_id: str
    attempt: int
    read: bool
    tenant: str
    v: int = TOOL_MESSAGE_VERSION

    def to_kwargs(self) -> dict[str, Any]:
        """As keyword arguments."""
        return as_mapping(self)

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> ToolMessage:
        """The message from which :meth:`to_kwargs` made ``kwargs``.

        Raises:
            NewerWire: The message is of a later version, whatever else is in it.
            WireError: It is not a tool message.
        """
        version = kwargs.get("v")
        if type(version) is int and version > TOOL_MESSAGE_VERSION:
            raise NewerWire(f"a tool message of version {version}; this worker reads {TOOL_MESSAGE_VERSION}")
        try:
            message = cls(**kwargs)
        except TypeError as error:
            raise WireError(f"not a tool message: {error}") from None
        wrong = [name for name, kind in _FIELDS.items() if type(getattr(message, name)) is not kind]
        if wrong:
            raise WireError(f"not a tool message: wrong types of {', '.join(wrong)}")
        if _CALL_ID.fullmatch(message.call_id) is None:
            raise WireError(
                f"not a tool message: call_id is a step, a dot and a position, not {message.call_id[:100]!r}"
            )
        return message


_CALL_ID: Final = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}")
_FIELDS: Final[Mapping[str, type]] = get_type_hints(ToolMessage)
