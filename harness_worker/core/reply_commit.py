"""The commit of a model's reply: of a step, with the plan of waves or the end of the turn, or of an aside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from harness_worker.core.asides import Aside
from harness_worker.core.budget import Usage
from harness_worker.core.collect_reads import NO_REPORTS, ReadReport
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.doubt import not_run
from harness_worker.core.ending import NO_ANSWER_TEXT, end_turn
from harness_worker.core.lifecycle import end_call, merge
from harness_worker.core.outcomes import ToolOutcome
from harness_worker.core.progress import (
    AskModel,
    Finished,
    Next,
    close_turn,
    cut_turn,
    exhausted,
    go_on,
    in_next_visit,
    run_out,
    stop_turn,
)
from harness_worker.core.prompting.length import measured
from harness_worker.core.prompting.prompt import Prompt
from harness_worker.core.records import Call, CallStatus, EventDraft, Message, Turn, TurnPreparation
from harness_worker.core.sources.citations import Citation
from harness_worker.core.text import clean_text
from harness_worker.core.visits import StopCause, Visit, stop_cause
from harness_worker.core.warnings import CONTEXT_LIMIT
from harness_worker.wire import StopReason, TurnStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One model reply, ready to be committed.

    Args:
        content: Anthropic content blocks, verbatim.
        text: Their text.
        stop_reason: As the provider named it.
        usage: What the model call cost, without steps and tool calls.
        calls: The requested tool calls, planned; denied ones already have their outcome.
        prompt: The prompt; its preparation is stored with the turn, and its hashes go into the event.
        citations: What the reply cites.
    """

    content: tuple[Mapping[str, Any], ...]
    text: str
    stop_reason: str
    usage: Usage
    calls: tuple[Call, ...]
    prompt: Prompt
    citations: tuple[Citation, ...] = ()


PAUSE = "pause_turn"
"""The provider paused while using tools of its own: its message is kept, and the next step continues it."""

_INCOMPLETE = {
    "max_tokens": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.MAX_TOKENS,
    "refusal": StopReason.REFUSAL,
}


def plan(snapshot: Snapshot, *, visit: Visit, said: Said) -> Decision[Next]:
    """Append the message and act on it: dispatch the first segment of its plan, or end the turn."""
    fresh = replace(snapshot, calls=())
    decision = _act(fresh, visit, _spoken(snapshot.turn, said), said)
    message = Message(role="assistant", content=[dict(block) for block in said.content])
    events = (_model_completed(snapshot.turn.step, said), *decision.events)
    return replace(decision, messages=(message, *decision.messages), events=events)


def commit_aside(snapshot: Snapshot, *, visit: Visit, aside: Aside) -> Decision[Next]:
    """Store an aside: charge for it, report it, and let the turn go on to its step if it still may."""
    fresh = replace(snapshot, calls=())
    decision = _after_aside(fresh, visit, _charged(snapshot.turn, aside))
    return replace(decision, events=(aside.event, *decision.events))


def go_on_asked(snapshot: Snapshot, *, visit: Visit, answered: Sequence[Call]) -> Decision[Next]:
    """Go on with the calls as the hooks left them."""
    planned = {call.call_id for call in snapshot.calls if call.status is CallStatus.PLANNED}
    calls = merge(snapshot.calls, (call for call in answered if call.call_id in planned))
    cause = stop_cause(snapshot.turn, snapshot.now)
    if cause is not None:
        return stop_turn(snapshot, snapshot.turn, calls, cause)
    return in_next_visit(go_on(snapshot, visit, snapshot.turn, calls), visit, now=snapshot.now)


def give_up(
    snapshot: Snapshot,
    *,
    reason: StopReason,
    message: str,
    cause: StopCause | None = None,
    reports: Mapping[str, ReadReport] = NO_REPORTS,
) -> Decision[Finished]:
    """End the turn without a reply from the model: cancelled, past its deadline, or else failed. What was said is kept.

    ``message`` is the error's message; with the reason ``cancelled``, it is the text that the model had said by then.
    ``reports`` are the gate's reports on reads that are still open.
    """
    message, cause = clean_text(message), stop_cause(snapshot.turn, snapshot.now) or cause
    if cause is not None:
        said = message if reason is StopReason.CANCELLED else ""
        text = "\n\n".join(part for part in (snapshot.turn.output_text, said) if part)
        return stop_turn(snapshot, replace(snapshot.turn, output_text=text), snapshot.calls, cause, reports)
    error = {"code": reason.value, "message": message}
    failed = partial(end_turn, status=TurnStatus.FAILED, reason=reason, now=snapshot.now, error=error)
    return cut_turn(snapshot, snapshot.turn, snapshot.calls, StopCause.FAILED, reports, end=failed)


def _spoken(turn: Turn, said: Said) -> Turn:
    used = turn.used.plus(said.usage).plus(Usage(steps=1))
    text = "\n\n".join(part for part in (turn.output_text, said.text) if part)
    return replace(turn, step=turn.step + 1, used=used, output_text=text, preparation=_prepared(said))


def _prepared(said: Said) -> TurnPreparation:
    """What the turn was sent with; the prompt's length is kept only for an agent that compacts."""
    preparation = said.prompt.preparation
    if preparation.compact_at is None:
        return replace(preparation, prompt_tokens=0, prompt_chars=0)
    return measured(said.prompt, said.usage.prompt_tokens)


def _act(fresh: Snapshot, visit: Visit, turn: Turn, said: Said) -> Decision[Next]:
    calls = said.calls
    cause = stop_cause(turn, fresh.now)
    if cause is not None:
        return stop_turn(fresh, turn, calls, cause)
    cut = _INCOMPLETE.get(said.stop_reason)
    pauses = said.stop_reason == PAUSE and bool(said.content)
    if (not calls and not pauses) or cut is not None:
        return _finish(fresh, turn, said, cut)
    return in_next_visit(go_on(fresh, visit, turn, calls), visit, now=fresh.now)


def _finish(fresh: Snapshot, turn: Turn, said: Said, cut: StopReason | None) -> Decision[Finished]:
    citations = said.citations if cut is None else ()
    spoken = replace(turn, output_text=said.text or NO_ANSWER_TEXT, citations=citations)
    status = TurnStatus.COMPLETED if cut is None else TurnStatus.INCOMPLETE
    ended = end_turn(spoken, status, cut or StopReason.END_TURN, now=fresh.now)
    return close_turn(fresh, ended, [end_call(c, _cut_short(c, said), now=fresh.now) for c in said.calls])


def _cut_short(call: Call, said: Said) -> ToolOutcome:
    """The outcome of a call in a reply that was cut short: ``not_run``, unless it was already denied.

    The last call is ``not_run`` even if its arguments are invalid, because it is the one that was cut off.
    """
    is_whole = call.position < said.calls[-1].position
    return (call.outcome if is_whole else None) or not_run(call, "the reply was cut short")


def _charged(turn: Turn, aside: Aside) -> Turn:
    """The turn, charged for the aside; after a summary, its context's length may be warned of again."""
    warned = turn.recall.warned
    if aside.event.type == "compaction.completed":
        warned = tuple(name for name in warned if name != CONTEXT_LIMIT)
    recall = replace(turn.recall, warned=warned)
    carried = aside.carried or turn.carried
    return replace(turn, used=turn.used.plus(aside.used), preparation=aside.preparation, carried=carried, recall=recall)


def _after_aside(fresh: Snapshot, visit: Visit, turn: Turn) -> Decision[Next]:
    cause = stop_cause(turn, fresh.now)
    if cause is not None:
        return stop_turn(fresh, turn, (), cause)
    reason = exhausted(turn, now=fresh.now)
    if reason is not None:
        return run_out(fresh, turn, (), reason)
    going: Decision[Next] = Decision(result=AskModel(turn=turn), turn=turn)
    return in_next_visit(going, visit, now=fresh.now)


def _model_completed(step: int, said: Said) -> EventDraft:
    data = {"step": step, "text": said.text, "stop_reason": said.stop_reason, "usage": said.usage.costs}
    return EventDraft(type="model.completed", data={**data, **_asked(said.prompt)})


def _asked(prompt: Prompt) -> dict[str, Any]:
    """Which model was asked, and hashes of what was sent; ``cache_break`` is present only if true."""
    told = {"model": prompt.model, "prefix_hash": prompt.preparation.prefix_hash, "render_hash": prompt.render_hash}
    return {**told, "cache_break": True} if prompt.is_cache_break else told
