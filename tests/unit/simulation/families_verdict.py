"""What must hold of a turn and the turns that its calls of agents are, once all have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from harness_worker.core.budget import Usage
from harness_worker.core.doubt import is_doubt
from harness_worker.core.outcomes import ToolDenied, ToolExecutionResult, ToolFailure
from harness_worker.core.records import Call, Turn
from harness_worker.wire import StopReason, TurnStatus

CUT = (StopReason.CANCELLED, StopReason.DEADLINE, StopReason.INTERNAL)
"""How a turn ends that does not wait for whom it asked."""


def family_breaches(turn: Turn, calls: Sequence[Call], children: Sequence[Turn], met: Counter[str]) -> Iterator[str]:
    """Everything wrong with whom a turn has asked."""
    asked = [call for call in calls if call.is_delegated and call.was_sent]
    born = Counter(child.parent_call_id for child in children)
    if born != Counter(call.call_id for call in asked):
        yield f"children {born} for calls {[call.call_id for call in asked]}"
        return
    by_call = {child.parent_call_id: child for child in children}
    for call in asked:
        child = by_call[call.call_id]
        yield from _of_outcome(turn, call, child, met)
        yield from _of_doubt(turn, call, child)
        yield from _of_inheritance(turn, child)
    yield from _of_charges(turn, [by_call[call.call_id] for call in asked if not is_doubt(call)], len(asked))


def _of_outcome(turn: Turn, call: Call, child: Turn, met: Counter[str]) -> Iterator[str]:
    outcome = call.outcome
    met[f"child {child.status} told as {'doubt' if is_doubt(call) else type(outcome).__name__}"] += 1
    if call.attempt != 1 or call.worker is not None:
        yield f"{call.call_id} was run as if it were a function: {call}"
    if is_doubt(call):
        return
    if (child.finished_at or 0.0) > (turn.finished_at or 0.0):
        yield f"{call.call_id} was told before its turn had ended"
    if not child.status.is_final:
        yield f"{child.id} is told and goes on"
        return
    wanted = {
        TurnStatus.COMPLETED: ToolExecutionResult,
        TurnStatus.INCOMPLETE: ToolExecutionResult,
        TurnStatus.FAILED: ToolFailure,
        TurnStatus.CANCELLED: ToolFailure,
    }
    if not isinstance(outcome, wanted[child.status]) or isinstance(outcome, ToolDenied):
        yield f"{call.call_id}: {outcome} for a turn that {child.status}"
    if isinstance(outcome, ToolExecutionResult) and not outcome.output.endswith(child.output_text):
        yield f"{call.call_id} tells {outcome.output} for {child.output_text}"


def _of_doubt(turn: Turn, call: Call, child: Turn) -> Iterator[str]:
    if is_doubt(call) and turn.stop_reason not in CUT and not _left_doubt(child):
        yield f"{call.call_id} is in doubt though its turn ended with {turn.stop_reason}"
    if _left_doubt(child) and not is_doubt(call):
        yield f"{call.call_id} hides the doubt that its turn ended with: {child.recall.doubtful}"


def _left_doubt(child: Turn) -> bool:
    """Whether it did things that nobody knows the end of, and its model never answered."""
    ended_badly = (TurnStatus.INCOMPLETE, TurnStatus.FAILED, TurnStatus.CANCELLED)
    return child.status in ended_badly and bool(child.recall.doubtful)


def _of_inheritance(turn: Turn, child: Turn) -> Iterator[str]:
    if (child.tenant, child.priority, child.metadata) != (turn.tenant, turn.priority, turn.metadata):
        yield f"{child.id} is not of its parent's house"
    if child.budget.timeout_s > turn.budget.timeout_s or child.budget.max_dollars > turn.budget.max_dollars:
        yield f"{child.id} may use more than its parent"
    if child.session_id == turn.session_id:
        yield f"{child.id} speaks in its parent's session"


def _of_charges(turn: Turn, told: Sequence[Turn], asked: int) -> Iterator[str]:
    """All of what ended in time, and nothing but tokens and dollars."""
    charged = sum(child.spent.tokens for child in told)
    if turn.delegated.tokens < charged or (len(told) == asked and turn.delegated.tokens != charged):
        yield f"{turn.delegated.tokens} tokens charged for the {charged} of others"
    if turn.delegated != Usage(
        input_tokens=turn.delegated.input_tokens,
        output_tokens=turn.delegated.output_tokens,
        dollars=turn.delegated.dollars,
    ):
        yield f"charged for more than tokens and dollars: {turn.delegated}"
