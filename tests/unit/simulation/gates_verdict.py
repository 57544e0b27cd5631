"""What must hold of the gates in a whole journal, said another way than the engine says it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness_worker.core.doubt import is_doubt
from harness_worker.core.outcomes import DenialReason, ToolDenied, ToolFailure, is_error
from harness_worker.core.records import Call, Turn


def gate_breaches(turn: Turn, calls: Sequence[Call]) -> Iterator[str]:
    """Everything wrong with what was refused, what was not, and what was charged for it."""
    charged = sum(not isinstance(call.outcome, ToolDenied) for call in calls)
    if turn.used.tool_calls != charged:
        yield f"{turn.used.tool_calls} tool calls charged for {charged}"
    for place, call in enumerate(calls):
        yield from _of_replay(call, calls[:place])
        yield from _of_blocked(call, calls[:place])
        yield from _of_keys(call, calls[:place])


def _of_replay(call: Call, earlier: Sequence[Call]) -> Iterator[str]:
    ran = [before for before in earlier if not isinstance(before.outcome, ToolDenied)]
    if _is_denied(call, DenialReason.DUPLICATE) and _success_that_stands(call, ran) is None:
        yield f"{call.call_id} is told as a duplicate of nothing"
    sent = [before for before in earlier if before.was_sent]  # one that a tool worker denied might still have run
    original = _success_that_stands(call, sent)
    if original is not None and not isinstance(call.outcome, ToolDenied):
        yield f"{call.call_id} ran though {original.call_id} had done the same"


def _success_that_stands(call: Call, earlier: Sequence[Call]) -> Call | None:
    if not call.idempotent:
        return None
    for before in reversed(earlier):
        if _is_same(before, call):
            if before.outcome is not None and not is_error(before.outcome):
                return before
        elif not before.is_read:
            return None
    return None


def _of_blocked(call: Call, earlier: Sequence[Call]) -> Iterator[str]:
    fatal = [before for before in earlier if before.tool == call.tool and _is_fatal(before)]
    if _is_denied(call, DenialReason.BLOCKED) and not fatal:
        yield f"{call.call_id} is told as blocked by nothing"
    if any(before.step < call.step for before in fatal) and not isinstance(call.outcome, ToolDenied):
        yield f"{call.call_id} ran though its tool was blocked"


def _of_keys(call: Call, earlier: Sequence[Call]) -> Iterator[str]:
    ran = [before for before in earlier if not isinstance(before.outcome, ToolDenied)]  # the rest never used its key
    users = [before for before in ran if before.idempotency_key == call.idempotency_key]
    if users and not isinstance(call.outcome, ToolDenied) and not (is_doubt(users[-1]) and _is_same(users[-1], call)):
        yield f"{call.call_id} has the key of {users[-1].call_id}"


def _is_same(one: Call, other: Call) -> bool:
    return one.tool == other.tool and one.arguments == other.arguments


def _is_denied(call: Call, reason: DenialReason) -> bool:
    return isinstance(call.outcome, ToolDenied) and call.outcome.reason is reason


def _is_fatal(call: Call) -> bool:
    return isinstance(call.outcome, ToolFailure) and not call.outcome.retryable
