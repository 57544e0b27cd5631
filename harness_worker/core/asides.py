"""Asking a model beside a turn's steps: it reflects on what failed, or sums up a history that grows too long.

Both come before a step's own call, after the results of the step before it, and what they came to is committed before
it (ADR 17).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from harness_worker.core.budget import Usage
from harness_worker.core.canonical import canonical
from harness_worker.core.gates import MODEL_FLOOR_S, floor_of
from harness_worker.core.prompting.prompt import Prompt, RequestKind
from harness_worker.core.prompting.sent import blocks_of, with_text_behind
from harness_worker.core.records import EventDraft, Turn, TurnPreparation
from harness_worker.core.registration.thinking import REFLECTION_TOKENS
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.reply_commit import COUNTS
from harness_worker.wire import EventType, as_mapping

NO_BUDGET: Final = "[budget exhausted]"
NO_TIME: Final = "[deadline expired]"
MOST_ERROR_CHARS: Final = 500

_REFLECT: Final = (
    "Before you go on, stop and think, in a few sentences: what did you want, what came of it, why did anything fail, "
    "and what will you do next? Do not ask for a tool now, and do not answer the user yet: only you will read this."
)
_SUM_UP: Final = (
    "This conversation grows too long. Sum up all of it, for yourself: only your summary and the newest messages will "
    "be there from now on. Keep what the user wants and prefers, what was found out, decided and done, what failed "
    "and what is still open; keep names, numbers and ids (of artifacts too) exactly. Answer with the summary alone, "
    "and do not ask for a tool."
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
    if not prompt.messages or prompt.messages[-1].role != "user":
        return None
    if _reflects(prompt, turn, agent):
        return RequestKind.REFLECTION
    return RequestKind.COMPACTION if _compacts(prompt, turn) else None


def _reflects(prompt: Prompt, turn: Turn, agent: AgentSpec) -> bool:
    if agent.think == "off" or turn.step == 0 or str(turn.step) in prompt.preparation.notes:
        return False
    has_failed = any(block.get("is_error") for block in blocks_of(prompt.messages[-1]))
    return has_failed or (agent.reflect_every is not None and turn.step % agent.reflect_every == 0)


def _compacts(prompt: Prompt, turn: Turn) -> bool:
    """Whether the last prompt was too long, and something stands in this one that a summary would replace."""
    prepared = prompt.preparation
    if prepared.compact_at is None or prepared.prompt_tokens < prepared.compact_at:
        return False
    return prompt.has_past or turn.step - 1 > max(0, prepared.compacted_at - 1)


def instead(prompt: Prompt, kind: RequestKind, agent: AgentSpec) -> Prompt:
    """The aside's prompt: the step's own with another wish at its end, so that the provider's cache serves both."""
    wish, most = (_REFLECT, REFLECTION_TOKENS[agent.think]) if kind is RequestKind.REFLECTION else (_SUM_UP, None)
    *before, last = prompt.messages
    return replace(prompt, messages=(*before, with_text_behind(last, wish)), kind=kind, max_tokens=most)


def refused(turn: Turn, kind: RequestKind, *, remaining_s: float) -> AsideAnswer | None:
    """Why the model is not asked at all, if so: no reflection is left, or no time for this and the step."""
    if kind is RequestKind.REFLECTION and turn.used.reflections >= turn.budget.max_reflections:
        return AsideAnswer(text=NO_BUDGET)
    return AsideAnswer(text=NO_TIME) if remaining_s < 2 * floor_of(turn, MODEL_FLOOR_S) else None


def failed(why: str, kind: RequestKind) -> AsideAnswer:
    """A model that was asked and did not answer; a reflection is used up all the same."""
    return AsideAnswer(text=f"[model error: {why[:MOST_ERROR_CHARS]}]", used=_claimed(kind))


def overdue(kind: RequestKind) -> AsideAnswer:
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

    How long the prompt is will be known after the next call: so a summary that failed is not tried again before it.
    """
    unknown = replace(prompt.preparation, prompt_tokens=0)
    return unknown if answer.is_stub else replace(unknown, summary=answer.text, compacted_at=turn.step)


def compaction(prompt: Prompt, turn: Turn, answer: AsideAnswer, after: Prompt) -> Aside:
    """A summary as it is kept.

    Args:
        prompt: What would have been sent without it.
        turn: The turn.
        answer: The summary.
        after: What is sent with it.
    """
    tokens = prompt.preparation.prompt_tokens
    told = {
        "tokens_before": tokens,
        "tokens_after": round(tokens * _chars(after) / _chars(prompt)),
        "kept_messages": len(after.messages),
    }
    return _aside("compaction.completed", prompt, compacted(prompt, turn, answer), turn, answer, told)


def _chars(prompt: Prompt) -> int:
    tools = [[tool.name, tool.description, tool.schema] for tool in prompt.tools]
    return len(canonical([prompt.system, tools, [message.content for message in prompt.messages]]))


def _aside(
    kind: EventType, prompt: Prompt, preparation: TurnPreparation, turn: Turn, answer: AsideAnswer, told: dict[str, Any]
) -> Aside:
    usage = {name: value for name, value in as_mapping(answer.used).items() if name not in COUNTS}
    said = {"step": turn.step, "text": answer.text, "is_stub": answer.is_stub}
    data = {**said, "model": prompt.model, "usage": usage, **told}
    broke = {"cache_break": True} if prompt.is_cache_break else {}
    return Aside(preparation=preparation, used=answer.used, event=EventDraft(type=kind, data={**data, **broke}))
