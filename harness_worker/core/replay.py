"""ReplayControl: what earlier calls of a turn mean for later ones (docs/reference/gates.md).

A snapshot holds the calls of one step only. What matters of earlier steps is folded into the turn's
:class:`~harness_worker.core.recall.Recall` in the commit that ends each step, so it is as durable as the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from harness_worker.core.canonical import canonical, sha256_of
from harness_worker.core.doubt import is_doubt
from harness_worker.core.outcomes import (
    ToolArtifactReference,
    ToolDenied,
    ToolExecutionResult,
    ToolFailure,
    content_of,
)
from harness_worker.core.recall import Recall
from harness_worker.core.records import Call, CallStatus, in_order
from harness_worker.core.strategy import after_use

FINGERPRINT_CHARS = 32


def fingerprint(tool: str, arguments: Mapping[str, Any]) -> str:
    """A text that is equal for calls that ask the same thing: the same tool with equal canonical arguments."""
    return _digest(tool, canonical(arguments))


def repeats(call: Call, other: Call) -> bool:
    """Whether two calls ask the same thing."""
    return call.tool == other.tool and canonical(call.arguments) == canonical(other.arguments)


def after_calls(recall: Recall, calls: Iterable[Call]) -> Recall:
    """What is remembered once these calls are taken into account, each as far as it has come."""
    for call in in_order(calls):
        if call.status is not CallStatus.PLANNED and not isinstance(call.outcome, ToolDenied):
            recall = _after_end(after_dispatch(recall, call), call)
    return recall


def after_dispatch(recall: Recall, call: Call) -> Recall:
    """What is remembered after a dispatch: a write makes every other call new; a repeat takes over a doubt's key."""
    if not recall.done and not recall.doubtful:
        return recall
    mine = fingerprint(call.tool, call.arguments)
    done = recall.done if call.is_read else {key: by for key, by in recall.done.items() if key == mine}
    doubtful = {key: used for key, used in recall.doubtful.items() if key != mine}
    return replace(recall, done=done, doubtful=doubtful)


def after_step(recall: Recall, calls: Iterable[Call]) -> Recall:
    """What is remembered after a step with these calls; a step without calls says nothing about progress."""
    ordered = in_order(calls)
    if not ordered:
        return recall
    digest = _digest(*(part for call in ordered for part in (call.tool, canonical(call.arguments), _got(call))))
    running = recall.repeats + 1 if digest == recall.last_step else 1
    used = after_use(recall.used, ordered)
    return replace(after_calls(recall, ordered), last_step=digest, repeats=running, used=used)


def duplicate_of(recall: Recall, call: Call) -> str | None:
    """The earlier call whose success makes this one needless, if its tool is ``idempotent``."""
    return recall.done.get(fingerprint(call.tool, call.arguments)) if call.idempotent else None


def key_for(recall: Recall, call: Call) -> str:
    """The idempotency key to run the call with: that of the call in doubt which it repeats, or its own."""
    own = call.idempotency_key
    return recall.doubtful.get(fingerprint(call.tool, call.arguments), own) if recall.doubtful else own


def _after_end(recall: Recall, call: Call) -> Recall:
    outcome = call.outcome
    if call.idempotent and isinstance(outcome, ToolExecutionResult | ToolArtifactReference):
        return replace(recall, done={**recall.done, fingerprint(call.tool, call.arguments): call.call_id})
    if isinstance(outcome, ToolFailure) and not outcome.retryable:
        return replace(recall, blocked={call.tool: call.call_id, **recall.blocked})
    if is_doubt(call):
        key = fingerprint(call.tool, call.arguments)
        return replace(recall, doubtful={**recall.doubtful, key: call.idempotency_key})
    return recall


def _got(call: Call) -> str:
    """What the model learned from a call, without what differs each time."""
    outcome = call.outcome
    if isinstance(outcome, ToolArtifactReference):
        return f"{outcome.size_bytes} {outcome.summary}"
    return content_of(outcome) if outcome is not None else ""


def _digest(*parts: str) -> str:
    return sha256_of(parts)[:FINGERPRINT_CHARS]
