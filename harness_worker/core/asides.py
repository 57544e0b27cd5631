"""Asides: model calls beside a turn's steps, to reflect on what failed or to summarise a history grown too long.

Both come between the results of one step and the model call of the next, and are committed before that call (ADR 17).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from harness_worker.core.budget import Usage
from harness_worker.core.gates import MODEL_FLOOR_S, floor_of
from harness_worker.core.prompting.length import tokens_of
from harness_worker.core.prompting.prompt import Prompt, RequestKind
from harness_worker.core.prompting.sent import blocks_of, bound_from, text_block, with_short_results, with_text_behind
from harness_worker.core.records import Carried, EventDraft, Message, Turn, TurnPreparation
from harness_worker.core.registration.thinking import REFLECTION_TOKENS
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.text import clean_text
from harness_worker.wire import EventType

NO_BUDGET: Final = "[budget exhausted]"
NO_TIME: Final = "[deadline expired]"
MOST_ERROR_CHARS: Final = 500
MOST_RESULT_CHARS: Final = 1_000
"""How much of each result a summary is made from if the whole history is too long to be read, in characters."""

_REFLECT: Final = (
    "Before you go on, stop and think, in a few sentences: what did you want, what came of it, why did anything fail, "
    "and what will you do next? Do not ask for a tool now, and do not answer the user yet: only you will read this."
)
_SUM_UP: Final = (
    "This conversation grows too long. Sum up all of it, for yourself: only your summary and the messages after this "
    "one will be there from now on. Keep what the user wants and prefers, what was found out, decided and done, what "
    "failed and what is still open; keep names, numbers and ids (of artifacts too) exactly. Answer with the summary "
    "alone, and do not ask for a tool."
)
_WHOLE: Final = frozenset({"end_turn", "stop_sequence"})
"""Stop reasons of a reply that is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """The result of an aside, ready to be committed.

    Args:
        preparation: What the turn is sent with from now on.
        used: What it cost, including the reflection itself.
        event: The event that reports it.
        carried: What prompts still need of the summarised history; ``None`` if there is no summary.
    """

    preparation: TurnPreparation
    used: Usage
    event: EventDraft
    carried: Carried | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AsideAnswer:
    """A model's answer to an aside.

    Args:
        text: The answer; for a stub, why there is none, in brackets.
        is_stub: Whether there is no usable answer.
        used: What it cost, including the reflection itself.
    """

    text: str
    is_stub: bool = True
    used: Usage = field(default_factory=Usage)


def due(prompt: Prompt, turn: Turn, agent: AgentSpec) -> RequestKind | None:
    """The aside that must come before the turn's next step, if any.

    Args:
        prompt: The step's own prompt, as it would be sent now.
        turn: The turn.
        agent: Its agent.
    """
    if not _ends_with_user(prompt):
        return None
    if _reflects(prompt, turn, agent):
        return RequestKind.REFLECTION
    return RequestKind.COMPACTION if _compacts(prompt, turn) else None


def _ends_with_user(prompt: Prompt) -> bool:
    return bool(prompt.messages) and prompt.messages[-1].role == "user"


def _reflects(prompt: Prompt, turn: Turn, agent: AgentSpec) -> bool:
    if agent.think == "off" or turn.step == 0 or str(turn.step) in prompt.preparation.notes:
        return False
    has_failed = any(block.get("is_error") for block in blocks_of(prompt.messages[-1]))
    return has_failed or (agent.reflect_every is not None and turn.step % agent.reflect_every == 0)


def _compacts(prompt: Prompt, turn: Turn) -> bool:
    """Whether the prompt is too long, including what was added since the provider last counted one."""
    at = prompt.preparation.compact_at
    return at is not None and compactable(prompt, turn) and tokens_of(prompt) >= at


def compactable(prompt: Prompt, turn: Turn) -> bool:
    """Whether a summary may be requested: once a step, and only if there is something for it to replace."""
    prepared = prompt.preparation
    if prepared.compact_at is None or prepared.tried_at == turn.step or not _ends_with_user(prompt):
        return False
    return prompt.has_past or turn.step - 1 > max(0, prepared.compacted_at - 1)


def aside_prompt(prompt: Prompt, turn: Turn, kind: RequestKind, agent: AgentSpec) -> Prompt:
    """The aside's prompt: the step's own with a different request at its end, so that both use the provider's cache."""
    if kind is RequestKind.COMPACTION:
        return replace(prompt, messages=_to_sum_up(prompt.messages, turn), kind=kind, max_tokens=None)
    *before, last = prompt.messages
    messages = (*before, with_text_behind(last, _REFLECT))
    return replace(prompt, messages=messages, kind=kind, max_tokens=REFLECTION_TOKENS[agent.think])


def _to_sum_up(messages: Sequence[Message], turn: Turn) -> tuple[Message, ...]:
    """The messages that a summary will replace.

    What was added last, the newest step with its results or a new turn's words, is left out: it may be too long for any
    request, and is sent verbatim after the summary. But a step that continues from the provider's pause makes no sense
    without the paused message; then everything is summarised.
    """
    if turn.step == 0:
        return (*messages[:-1], Message(role="user", content=[text_block(_SUM_UP)]))
    *before, last = messages if messages[-3].role == "assistant" else messages[:-2]
    return (*before, with_text_behind(last, _SUM_UP))


def shortened(prompt: Prompt) -> Prompt:
    """The prompt with long results cut short, and without thinking, which is only valid after unchanged text."""
    messages = bound_from(prompt.messages, len(prompt.messages))
    return replace(prompt, messages=tuple(with_short_results(each, MOST_RESULT_CHARS) for each in messages))


def refused(turn: Turn, kind: RequestKind, *, remaining_s: float) -> AsideAnswer | None:
    """The stub for an aside that is not requested at all: no reflection is left, or no time for it and the step."""
    if kind is RequestKind.REFLECTION and turn.used.reflections >= turn.budget.max_reflections:
        return AsideAnswer(text=NO_BUDGET)
    return AsideAnswer(text=NO_TIME) if remaining_s < 2 * floor_of(turn, MODEL_FLOOR_S) else None


def failed(why: str, kind: RequestKind) -> AsideAnswer:
    """The stub for a model that was asked and failed; a reflection counts as used all the same."""
    return AsideAnswer(text=f"[model error: {clean_text(why)[:MOST_ERROR_CHARS]}]", used=_claimed(kind))


def timed_out(kind: RequestKind) -> AsideAnswer:
    """The stub for a model that did not answer in time."""
    return AsideAnswer(text=NO_TIME, used=_claimed(kind))


def answer_in(text: str, stop_reason: str, usage: Usage, kind: RequestKind) -> AsideAnswer:
    """The answer in a reply. A reflection that was cut short is still useful; a summary must be whole."""
    used = usage.plus(_claimed(kind))
    whole = stop_reason != "refusal" if kind is RequestKind.REFLECTION else stop_reason in _WHOLE
    if whole and text.strip():
        return AsideAnswer(text=text.strip(), is_stub=False, used=used)
    return AsideAnswer(text=f"[model error: it said nothing of use ({clean_text(stop_reason)})]", used=used)


def _claimed(kind: RequestKind) -> Usage:
    return Usage(reflections=1 if kind is RequestKind.REFLECTION else 0)


def reflection(prompt: Prompt, turn: Turn, answer: AsideAnswer) -> Aside:
    """A reflection as it is stored. Every later model call reads it, unless it is a stub."""
    note = "" if answer.is_stub else answer.text
    preparation = replace(prompt.preparation, notes={**prompt.preparation.notes, str(turn.step): note})
    return _aside("reflection.completed", prompt, preparation, turn, answer, {})


def compacted(prompt: Prompt, turn: Turn, answer: AsideAnswer) -> TurnPreparation:
    """How the turn is sent from now on: the summary, then the newest step; or as before, if the summary failed.

    Either way no other summary is requested before this step. The length of the last prompt stays known, so a summary
    that failed is tried again before the next step.
    """
    tried = replace(prompt.preparation, tried_at=turn.step)
    return tried if answer.is_stub else replace(tried, summary=answer.text, compacted_at=turn.step)


def compaction(prompt: Prompt, turn: Turn, answer: AsideAnswer, after: Prompt) -> Aside:
    """A summary as it is stored.

    Args:
        prompt: The prompt that would have been sent without it.
        turn: The turn.
        answer: The summary.
        after: The prompt that is sent with it.
    """
    told = {
        "tokens_before": tokens_of(prompt),
        "tokens_after": tokens_of(after),
        "kept_messages": len(after.messages),
    }
    aside = _aside("compaction.completed", prompt, compacted(prompt, turn, answer), turn, answer, told)
    return aside if answer.is_stub else replace(aside, carried=prompt.carried)


def _aside(
    kind: EventType, prompt: Prompt, preparation: TurnPreparation, turn: Turn, answer: AsideAnswer, told: dict[str, Any]
) -> Aside:
    said = {"step": turn.step, "text": answer.text, "is_stub": answer.is_stub}
    data = {**said, "model": prompt.model, "usage": answer.used.costs, **told}
    broke = {"cache_break": True} if prompt.is_cache_break else {}
    return Aside(preparation=preparation, used=answer.used, event=EventDraft(type=kind, data={**data, **broke}))
