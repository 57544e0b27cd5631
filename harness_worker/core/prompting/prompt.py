"""The prompt of a model call (ADR 16: what changes from turn to turn comes after the history).

Tools and system text come first, then the session's earlier turns as they were sent, then this turn: its context, the
user's words, and what was said and done since. What was sent once is never rewritten, so the provider's cache stays
valid, until a summary replaces the history. Only three things are left out: thinking from under other tools or another
system text, what a model declined, and the provider's own calls that got no result before their turn ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from harness_worker.core.canonical import sha256_of
from harness_worker.core.prompting.artifact_reading import refers, tools_for
from harness_worker.core.prompting.past import PastTurn, as_read
from harness_worker.core.prompting.sent import UNPREPARED, TurnMessages, as_sent, bound_from, since_summary, tagged
from harness_worker.core.prompting.tool_selection import named_in, offered
from harness_worker.core.records import Carried, Message, Turn, TurnPreparation
from harness_worker.core.registration.tools import AgentSpec, ToolSpec
from harness_worker.core.sources.context_pack import ContextPack, memory_block, untrusted_block

_NOTHING_CARRIED: Final = Carried()


class RequestKind(StrEnum):
    """What a model is asked for: a turn's next step, an aside between its steps, or something about an ended turn."""

    STEP = "step"
    REFLECTION = "reflection"
    COMPACTION = "compaction"
    JUDGE = "judge"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What was loaded for a turn before its first model call.

    Args:
        facts: Facts remembered about the user.
        pack: Preferences and documents found for the user's words.
        left_out: What could not be loaded, and why.
    """

    facts: tuple[str, ...] = ()
    pack: ContextPack = field(default_factory=ContextPack)
    left_out: tuple[str, ...] = ()


NOTHING: Final = Gathered()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One model call, assembled.

    Args:
        system: The system text.
        tools: The tools offered.
        messages: The messages, Anthropic-shaped.
        preparation: What is stored with the turn, so that later calls send the same again.
        render_hash: SHA-256 of the whole prompt.
        is_cache_break: Whether what precedes the history differs from what the session sent last time.
        has_past: Whether the messages include those of earlier turns.
        kind: What the model is asked for.
        max_tokens: The reply's maximum length in tokens, if the prompt sets one.
        carried: What later prompts need of the history even if it is summarised; its documents may be cited.
        model: The model to ask.
    """

    system: str
    tools: tuple[ToolSpec, ...]
    messages: tuple[Message, ...]
    preparation: TurnPreparation
    render_hash: str
    is_cache_break: bool
    has_past: bool = False
    kind: RequestKind = RequestKind.STEP
    max_tokens: int | None = None
    carried: Carried = _NOTHING_CARRIED
    model: str = ""


def prepare(  # noqa: PLR0913 - what a prompt is made of
    turn: Turn,
    agent: AgentSpec,
    *,
    past: Sequence[PastTurn],
    own: Sequence[Message],
    artifact_reader: ToolSpec,
    gathered: Gathered = NOTHING,
    selected: Sequence[str] = (),
) -> Prompt:
    """The prompt of a turn's next model call.

    Args:
        turn: The turn; if it was sent before, its context is sent unchanged.
        agent: The agent, for its tools and system text; the turn's ``system_prompt_override`` replaces the latter.
        past: The session's earlier turns, in order. Those before one with ``carried`` may be missing, and all of them
            if the turn itself has it.
        own: The turn's own history.
        artifact_reader: The tool that is offered once the session has an artifact.
        gathered: What was loaded for a turn that is sent for the first time.
        selected: The names of the tools to offer, if the agent selects among its tools.
    """
    system = agent.system if turn.system_prompt_override is None else turn.system_prompt_override
    known = known_preparation(turn, past)
    kept = turn.preparation or _first_preparation(turn, agent, known, gathered)
    turns = (*map(as_read, past), (kept, as_sent(own, kept)))
    carried = _carried(turn.carried or (past[0].carried if past else None) or _NOTHING_CARRIED, turns)
    tools = (
        offered(agent, selected, carried.tools, artifact_reader)
        if selected
        else tools_for(agent, artifact_reader, has_artifact=carried.has_artifact)
    )
    summary = next((each.summary for each, _ in reversed(turns) if each is not None and each.summary is not None), None)
    prefix_hash = _prefix_hash(agent.model, system, tools, summary)
    messages = since_summary([_bound(each, prefix_hash) for each in turns])
    preparation = replace(
        kept,
        compact_at=agent.compact_at_tokens,
        prefix_hash=prefix_hash,
        bound_from=kept.bound_from if kept.prefix_hash == prefix_hash else turn.step,
        offered=_offered(known, agent, tools, selected),
    )
    return Prompt(
        system=system,
        tools=tools,
        messages=messages,
        preparation=preparation,
        render_hash=sha256_of([prefix_hash, [[message.role, message.content] for message in messages]]),
        is_cache_break=known is not None and known.prefix_hash != prefix_hash,
        has_past=preparation.summary is None and len(messages) > len(turns[-1][1]),
        carried=carried,
        model=agent.model,
    )


def is_unprepared(turn: Turn) -> bool:
    """Whether the turn's context has yet to be made; a turn started before preparations existed goes on without one."""
    return turn.preparation is None and turn.step == 0


def known_preparation(turn: Turn, past: Sequence[PastTurn]) -> TurnPreparation | None:
    """What the session was last sent with: this turn's preparation, or that of the last earlier turn that was sent."""
    before = (each.preparation for each in reversed(past) if each.preparation is not None)
    return turn.preparation or next(before, None)


def provider_of(model: str) -> str:
    """The provider of a model, by the model's name."""
    provider, separator, _ = model.partition(":")
    return provider if separator else "anthropic"


def _carried(before: Carried, turns: Sequence[TurnMessages]) -> Carried:
    """What later prompts need of these turns and of those before them, which are known only by ``before``."""
    said = [message for _, messages in turns for message in messages]
    given = (source for preparation, _ in turns if preparation is not None for source in preparation.sources)
    return Carried(
        tools=tuple(dict.fromkeys((*before.tools, *(name for message in said for name in named_in(message))))),
        has_artifact=before.has_artifact or any(map(refers, said)),
        sources=tuple({source.id: source for source in (*before.sources, *given)}.values()),
    )


def _bound(turn: TurnMessages, prefix_hash: str) -> TurnMessages:
    """The turn with only the thinking that was done under this prefix."""
    preparation, messages = turn
    if preparation is None or preparation.prefix_hash != prefix_hash:
        return preparation, bound_from(messages, len(messages))
    return preparation, bound_from(messages, max(preparation.bound_from, preparation.compacted_at))


def _first_preparation(
    turn: Turn, agent: AgentSpec, before: TurnPreparation | None, gathered: Gathered
) -> TurnPreparation:
    """The turn's first preparation; of the previous one it keeps only the length of the last prompt."""
    return replace(
        UNPREPARED,
        context=_contexts_of(turn, model=agent.model, gathered=gathered) if is_unprepared(turn) else (),
        prompt_tokens=before.prompt_tokens if before is not None else 0,
        prompt_chars=before.prompt_chars if before is not None else 0,
        sources=gathered.pack.sources,
        left_out=gathered.left_out,
    )


def _offered(
    known: TurnPreparation | None, agent: AgentSpec, tools: Sequence[ToolSpec], selected: Sequence[str]
) -> Mapping[str, tuple[str, ...]]:
    """The tools that the session is offered, by agent, stored for its later turns, including those of other agents."""
    before = (known or UNPREPARED).offered
    return {**before, agent.name: tuple(tool.name for tool in tools)} if selected else before


def _prefix_hash(model: str, system: str, tools: Sequence[ToolSpec], summary: str | None) -> str:
    prefix: dict[str, Any] = {"model": model, "system": system, "tools": [_shown(tool) for tool in tools]}
    return sha256_of(prefix if summary is None else {**prefix, "summary": summary})


def _contexts_of(turn: Turn, *, model: str, gathered: Gathered) -> tuple[str, ...]:
    """The texts placed before the user's words, in order, without empty ones.

    Runtime metadata, memories, retrieved text (which is untrusted), the request's ``skill_context``.
    """
    date = datetime.fromtimestamp(turn.started_at or turn.created_at, UTC).date().isoformat()
    facts = {
        "session_id": turn.session_id,
        "provider": provider_of(model),
        "model": model,
        "date": date,
    }
    metadata = tagged("runtime_metadata", "\n".join(f"{name}: {value}" for name, value in facts.items()))
    skill = tagged("skill_context", turn.skill_context) if turn.skill_context else ""
    parts = (metadata, memory_block(gathered.facts), untrusted_block(gathered.pack), skill)
    return tuple(part for part in parts if part)


def _shown(tool: ToolSpec) -> list[Any]:
    return [tool.name, tool.description, tool.schema]
