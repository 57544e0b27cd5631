"""What became of a tool call: a closed union of frozen values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeAlias, assert_never, get_args

from harness_worker.core.text import cut_text
from harness_worker.wire import as_mapping, fields_of

OUTCOME_UNKNOWN = "outcome_unknown"
WORKER_LOST = "worker_lost"


class DenialReason(StrEnum):
    """Why a call was not run."""

    DUPLICATE = "duplicate"
    BLOCKED = "blocked"
    PRE_HOOK = "pre_hook"
    VALIDATION = "validation"
    DEADLINE = "deadline"
    BUDGET = "budget"
    APPROVAL = "approval"
    NOT_RUN = "not_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecutionResult:
    """The tool returned normally. ``output`` is what the model reads."""

    call_id: str
    tool_name: str
    output: str
    elapsed_ms: float
    was_coerced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTimeout:
    """The call ran out of time."""

    call_id: str
    tool_name: str
    deadline_s: float
    elapsed_ms: float = 0.0
    retryable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFailure:
    """The tool raised, returned an error, died too often, or ended in doubt (``outcome_unknown: …``).

    ``in_doubt`` means that the call started and nobody knows whether its effect happened. A tool can only say so by
    raising ``ToolOutcomeUnknown``; no return value says it.
    """

    call_id: str
    tool_name: str
    error: str
    retryable: bool = True
    elapsed_ms: float = 0.0
    in_doubt: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDenied:
    """The call never started."""

    call_id: str
    tool_name: str
    reason: DenialReason
    details: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolArtifactReference:
    """The output was too long for the context and is stored at ``url``."""

    call_id: str
    tool_name: str
    artifact_id: str
    summary: str
    url: str
    size_bytes: int
    elapsed_ms: float
    was_coerced: bool = False


ToolOutcome: TypeAlias = ToolExecutionResult | ToolTimeout | ToolFailure | ToolDenied | ToolArtifactReference

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(ToolOutcome)}

_DOUBTS = (f"{OUTCOME_UNKNOWN}:", f"{WORKER_LOST}:")


def content_of(outcome: ToolOutcome) -> str:
    """The text of an outcome that the model reads."""
    match outcome:
        case ToolExecutionResult():
            return outcome.output
        case ToolTimeout():
            return f"timeout: {outcome.tool_name} did not finish within {outcome.deadline_s:g} s"
        case ToolFailure():
            return outcome.error
        case ToolDenied():
            return f"denied: {outcome.reason.value}: {outcome.details}"
        case ToolArtifactReference():
            return f"{outcome.artifact_id}: {outcome.summary}"
        case _:
            assert_never(outcome)


def is_error(outcome: ToolOutcome) -> bool:
    """Whether the outcome is presented to the model as an error."""
    return isinstance(outcome, ToolTimeout | ToolFailure | ToolDenied)


def elapsed_ms_of(outcome: ToolOutcome) -> float:
    """How long the tool's body ran, in milliseconds; zero if it never did."""
    return 0.0 if isinstance(outcome, ToolDenied) else outcome.elapsed_ms


def shortened(outcome: ToolOutcome, most_chars: int) -> ToolOutcome:
    """The outcome, with the text of a failure or denial cut to ``most_chars`` characters.

    The text comes from tool code and stays in the session's history; if it were too long to send, every later turn
    would fail.
    """
    match outcome:
        case ToolFailure():
            return replace(outcome, error=cut_text(outcome.error, most_chars))
        case ToolDenied():
            return replace(outcome, details=cut_text(outcome.details, most_chars))
        case _:
            return outcome


def to_record(outcome: ToolOutcome) -> dict[str, Any]:
    """An outcome as a JSON object.

    ``kind`` is its class name. ``content`` and ``is_error`` repeat what the model is told, so that readers of the
    record need not know the five classes.
    """
    told = {"content": content_of(outcome), "is_error": is_error(outcome)}
    return {"kind": type(outcome).__name__, **as_mapping(outcome), **told}


def from_record(record: dict[str, Any]) -> ToolOutcome:
    """The outcome from which :func:`to_record` made ``record``.

    Raises:
        KeyError: The record's kind is not one of the five.
    """
    kind = _KINDS[record["kind"]]
    fields = fields_of(kind, record)
    if kind is ToolDenied:
        fields["reason"] = DenialReason(fields["reason"])
    if kind is ToolFailure and "in_doubt" not in fields:  # from a version that marked a doubt by its words alone
        fields["in_doubt"] = fields["error"].startswith(_DOUBTS)
    return kind(**fields)
