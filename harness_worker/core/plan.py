"""The commit with which a visit takes the model's word: its message, its plan of waves, or the end of the turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from harness_worker.core.budget import Usage
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.doubt import not_run
from harness_worker.core.ending import NO_ANSWER_TEXT, end_turn, stop_calls, terminal_event
from harness_worker.core.lifecycle import end_call
from harness_worker.core.outcomes import DenialReason, ToolDenied
from harness_worker.core.progress import AskModel, Dispatch, Finished, Next, Zombie, close_step, go_on, stop_turn
from harness_worker.core.records import Call, EventDraft, Message, Turn
from harness_worker.core.timing import Timing
from harness_worker.core.visits import StopCause, Visit, holds, release, stop_cause
from harness_worker.wire import StopReason, TurnStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One model reply, ready to be committed.

    Args:
        content: Anthropic content blocks, verbatim.
        text: Their text.
        stop_reason: As the provider named it.
        usage: What the call cost, without steps and tool calls.
        calls: The tool calls it asks for, planned; those denied have their outcome already.
    """

    content: tuple[Mapping[str, Any], ...]
    text: str
    stop_reason: str
    usage: Usage
    calls: tuple[Call, ...]


PAUSE = "pause_turn"
"""The provider took a break from tools of its own: its message stands, and the next step lets it go on."""

_INCOMPLETE = {
    "max_tokens": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.MAX_TOKENS,
    "refusal": StopReason.REFUSAL,
}


def plan(snapshot: Snapshot, *, visit: Visit, said: Said, timing: Timing) -> Decision[Next]:
    """Append the message and act on it: dispatch its first segment, or end the turn."""
    if not holds(visit, snapshot):
        return Decision(result=Zombie())
    fresh = replace(snapshot, calls=())
    calls = within_budget(said.calls, snapshot.turn)
    decision = _act(fresh, visit, _spoken(snapshot.turn, said, calls), said, calls, timing)
    message = Message(role="assistant", content=[dict(block) for block in said.content])
    events = (_model_completed(snapshot.turn.step, said), *decision.events)
    return replace(decision, messages=(message, *decision.messages), events=events)


def give_up(
    snapshot: Snapshot, *, visit: Visit, reason: StopReason, message: str, cause: StopCause | None = None
) -> Decision[Next]:
    """End the turn without the model's word: cancelled or too late if it is, else failed; what was said is kept.

    ``message`` is the error's; with the reason ``cancelled`` it is the text that the model had said by then.
    """
    if not holds(visit, snapshot):
        return Decision(result=Zombie())
    cause = stop_cause(snapshot.turn, snapshot.now) or cause
    if cause is not None:
        said = message if reason is StopReason.CANCELLED else ""
        text = "\n\n".join(part for part in (snapshot.turn.output_text, said) if part)
        return stop_turn(snapshot, replace(snapshot.turn, output_text=text), snapshot.calls, cause, {})
    error = {"code": reason.value, "message": message}
    ended = end_turn(snapshot.turn, TurnStatus.FAILED, reason, now=snapshot.now, error=error)
    cut = stop_calls(snapshot.calls, StopCause.FAILED, {}, now=snapshot.now)
    return close_step(snapshot, ended, cut, result=Finished(), last=(terminal_event(ended),))


def within_budget(calls: Sequence[Call], turn: Turn) -> tuple[Call, ...]:
    """The calls with those beyond ``max_tool_calls`` denied; denied ones do not count."""
    left = turn.budget.max_tool_calls - turn.used.tool_calls
    judged: list[Call] = []
    for call in calls:
        if call.outcome is None:
            left -= 1
        judged.append(
            call if call.outcome is not None or left >= 0 else replace(call, outcome=_over_budget(call, turn))
        )
    return tuple(judged)


def _over_budget(call: Call, turn: Turn) -> ToolDenied:
    details = f"all {turn.budget.max_tool_calls} tool calls of this turn are used"
    return ToolDenied(call_id=call.call_id, tool_name=call.tool, reason=DenialReason.BUDGET, details=details)


def _spoken(turn: Turn, said: Said, calls: Sequence[Call]) -> Turn:
    allowed = sum(call.outcome is None for call in calls)
    used = turn.used.plus(said.usage).plus(Usage(steps=1, tool_calls=allowed))
    text = "\n\n".join(part for part in (turn.output_text, said.text) if part)
    return replace(turn, step=turn.step + 1, used=used, output_text=text)


def _act(
    fresh: Snapshot, visit: Visit, turn: Turn, said: Said, calls: tuple[Call, ...], timing: Timing
) -> Decision[Next]:
    cause = stop_cause(turn, fresh.now)
    if cause is not None:
        return stop_turn(fresh, turn, calls, cause, {})
    cut = _INCOMPLETE.get(said.stop_reason)
    pauses = said.stop_reason == PAUSE and bool(said.content)
    if (not calls and not pauses) or cut is not None:
        return _finish(fresh, turn, said, calls, cut)
    return _next_visit(go_on(fresh, visit, turn, calls, timing), visit, now=fresh.now)


def _finish(fresh: Snapshot, turn: Turn, said: Said, calls: tuple[Call, ...], cut: StopReason | None) -> Decision[Next]:
    spoken = replace(turn, output_text=said.text or NO_ANSWER_TEXT)
    status = TurnStatus.COMPLETED if cut is None else TurnStatus.INCOMPLETE
    ended = end_turn(spoken, status, cut or StopReason.END_TURN, now=fresh.now)
    whole = [end_call(c, c.outcome or not_run(c, "the reply was cut short"), now=fresh.now) for c in calls]
    return close_step(fresh, ended, whole, result=Finished(), last=(terminal_event(ended),))


def _next_visit(decision: Decision[Next], visit: Visit, *, now: float) -> Decision[Next]:
    """A step that sends no call asks the model again in a visit of its own: visits have a time limit."""
    if not isinstance(decision.result, AskModel):
        return decision
    released = release(visit, decision.result.turn, wake_at=now, now=now)
    return replace(decision, turn=released, result=Dispatch(turn=released, calls=(), knock=True, remaining_s=0.0))


def _model_completed(step: int, said: Said) -> EventDraft:
    usage = {name: value for name, value in asdict(said.usage).items() if name not in ("steps", "tool_calls")}
    return EventDraft(
        type="model.completed",
        data={"step": step, "text": said.text, "stop_reason": said.stop_reason, "usage": usage},
    )
