"""Asking a model beside a turn's steps: it reflects on what failed, or sums up a history that grows too long.

Both come before a step's own call, after the results of the step before it, and what they came to is committed before
it (ADR 17).
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
from harness_worker.core.records import EventDraft, Message, Turn, TurnPreparation
from harness_worker.core.registration.thinking import REFLECTION_TOKENS
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.reply_commit import COUNTS
from harness_worker.wire import EventType, as_mapping

NO_BUDGET: Final = "[budget exhausted]"
NO_TIME: Final = "[deadline expired]"
MOST_ERROR_CHARS: Final = 500
MOST_RESULT_CHARS: Final = 1_000
"""What a summary is made of, of each result, where all of it is too long to be read."""

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
"""Stop reasons of a reply that says all it wanted to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """What an aside came to, ready to be committed.

    Args:
        preparation: What the turn is sent with from now on.
        used: What it cost, the reflection included.
        event: Tells of it.
    """

    preparation: TurnPreparation
    used: Usage
    event: EventDraft


@dataclass(frozen=True, slots=True, kw_only=True)
class AsideAnswer:
    """What a model said to an aside.

    Args:
        text: What it said; of no use: in brackets, why there is nothing.
        is_stub: Whether it is of no use.
        used: What it cost, the reflection included.
    """

    text: str
    is_stub: bool = True
    used: Usage = field(default_factory=Usage)


def due(prompt: Prompt, turn: Turn, agent: AgentSpec) -> RequestKind | None:
    """What the model must be asked before the turn's next step, if anything.

    Args:
        prompt: The step's own, as it would be sent now.
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
    """Whether the prompt is too long, with all that was added since the last one was counted."""
    at = prompt.preparation.compact_at
    return at is not None and compactable(prompt, turn) and tokens_of(prompt) >= at


def compactable(prompt: Prompt, turn: Turn) -> bool:
    """Whether a summary may be asked for: once a step, and only if something stands there that it would replace."""
    prepared = prompt.preparation
    if prepared.compact_at is None or prepared.tried_at == turn.step or not _ends_with_user(prompt):
        return False
    return prompt.has_past or turn.step - 1 > max(0, prepared.compacted_at - 1)


def instead(prompt: Prompt, turn: Turn, kind: RequestKind, agent: AgentSpec) -> Prompt:
    """The aside's prompt: the step's own with another wish at its end, so that the provider's cache serves both."""
    if kind is RequestKind.COMPACTION:
        return replace(prompt, messages=_to_sum_up(prompt.messages, turn), kind=kind, max_tokens=None)
    *before, last = prompt.messages
    messages = (*before, with_text_behind(last, _REFLECT))
    return replace(prompt, messages=messages, kind=kind, max_tokens=REFLECTION_TOKENS[agent.think])


def _to_sum_up(messages: Sequence[Message], turn: Turn) -> tuple[Message, ...]:
    """What a summary will replace: what was added since fits in no request, maybe, and is sent verbatim after it.

    That is the newest step and its results, or a new turn's words. A step that went on from the provider's pause
    cannot be told without it: then all is asked about.
    """
    if turn.step == 0:
        return (*messages[:-1], Message(role="user", content=[text_block(_SUM_UP)]))
    *before, last = messages if messages[-3].role == "assistant" else messages[:-2]
    return (*before, with_text_behind(last, _SUM_UP))


def shortened(prompt: Prompt) -> Prompt:
    """The prompt with the beginnings of long results; without its thoughts, which are bound to what stood before."""
    messages = bound_from(prompt.messages, len(prompt.messages))
    return replace(prompt, messages=tuple(with_short_results(each, MOST_RESULT_CHARS) for each in messages))


def refused(turn: Turn, kind: RequestKind, *, remaining_s: float) -> AsideAnswer | None:
    """Why the model is not asked at all, if so: no reflection is left, or no time for this and the step."""
    if kind is RequestKind.REFLECTION and turn.used.reflections >= turn.budget.max_reflections:
        return AsideAnswer(text=NO_BUDGET)
    return AsideAnswer(text=NO_TIME) if remaining_s < 2 * floor_of(turn, MODEL_FLOOR_S) else None


def failed(why: str, kind: RequestKind) -> AsideAnswer:
    """A model that was asked and did not answer; a reflection is used up all the same."""
    return AsideAnswer(text=f"[model error: {why[:MOST_ERROR_CHARS]}]", used=_claimed(kind))


def timed_out(kind: RequestKind) -> AsideAnswer:
    """A model that was asked and did not answer in time."""
    return AsideAnswer(text=NO_TIME, used=_claimed(kind))


def heard(text: str, stop_reason: str, usage: Usage, kind: RequestKind) -> AsideAnswer:
    """What a reply is worth. A reflection that was cut short is one; a summary must be whole."""
    used = usage.plus(_claimed(kind))
    whole = stop_reason != "refusal" if kind is RequestKind.REFLECTION else stop_reason in _WHOLE
    if whole and text.strip():
        return AsideAnswer(text=text.strip(), is_stub=False, used=used)
    return AsideAnswer(text=f"[model error: it said nothing of use ({stop_reason})]", used=used)


def _claimed(kind: RequestKind) -> Usage:
    return Usage(reflections=1 if kind is RequestKind.REFLECTION else 0)


def reflection(prompt: Prompt, turn: Turn, answer: AsideAnswer) -> Aside:
    """A reflection as it is kept: what it says is read by every later call, a stub by none."""
    note = "" if answer.is_stub else answer.text
    preparation = replace(prompt.preparation, notes={**prompt.preparation.notes, str(turn.step): note})
    return _aside("reflection.completed", prompt, preparation, turn, answer, {})


def compacted(prompt: Prompt, turn: Turn, answer: AsideAnswer) -> TurnPreparation:
    """How the turn is sent from now on: from its newest step on, under the summary; as before, if there is none.

    Either way none is asked for again before this step, and how long the last prompt was stays known: so one that
    failed is tried again before the next.
    """
    tried = replace(prompt.preparation, tried_at=turn.step)
    return tried if answer.is_stub else replace(tried, summary=answer.text, compacted_at=turn.step)


def compaction(prompt: Prompt, turn: Turn, answer: AsideAnswer, after: Prompt) -> Aside:
    """A summary as it is kept.

    Args:
        prompt: What would have been sent without it.
        turn: The turn.
        answer: The summary.
        after: What is sent with it.
    """
    told = {
        "tokens_before": tokens_of(prompt),
        "tokens_after": tokens_of(after),
        "kept_messages": len(after.messages),
    }
    return _aside("compaction.completed", prompt, compacted(prompt, turn, answer), turn, answer, told)


def _aside(
    kind: EventType, prompt: Prompt, preparation: TurnPreparation, turn: Turn, answer: AsideAnswer, told: dict[str, Any]
) -> Aside:
    usage = {name: value for name, value in as_mapping(answer.used).items() if name not in COUNTS}
    said = {"step": turn.step, "text": answer.text, "is_stub": answer.is_stub}
    data = {**said, "model": prompt.model, "usage": usage, **told}
    broke = {"cache_break": True} if prompt.is_cache_break else {}
    return Aside(preparation=preparation, used=answer.used, event=EventDraft(type=kind, data={**data, **broke}))
