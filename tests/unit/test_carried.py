"""A prompt is the same whether all of a session is read for it, or what came since a summary and what was carried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from harness_worker.core.asides import AsideAnswer, compacted, compaction
from harness_worker.core.decisions import Snapshot
from harness_worker.core.forks import adopt_past
from harness_worker.core.prompting.past import PastTurn
from harness_worker.core.prompting.prompt import Gathered, Prompt, is_unprepared, known_preparation, prepare
from harness_worker.core.prompting.tool_selection import kept, selects
from harness_worker.core.records import Message, Turn
from harness_worker.core.registration.registry import Registry
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.sources.context_pack import ContextPack, Passage
from harness_worker.wire import StopReason, TurnStatus
from tests.unit.builders import READER, a_turn

TOOLS = ("t0", "t1", "t2", "t3", "t4")


def nothing(_arguments: dict[str, Any]) -> str:
    """A tool's body."""
    return ""


def agents() -> list[AgentSpec]:
    """One offers all of its tools, two select some of theirs."""
    registry = Registry()
    for name in TOOLS:
        registry.add_tool(nothing, name=name, schema={"type": "object"}, description="A tool.")
    few = registry.agent("few", model="m", tools=TOOLS[:2], compact_at_tokens=1)
    first = registry.agent("first", model="m", tools=TOOLS, select_tools=2, compact_at_tokens=1)
    return [few, first, registry.agent("second", model="n", tools=TOOLS[1:], select_tools=2)]


AGENTS = agents()


@dataclass(frozen=True, slots=True)
class Step:
    """A model's reply and what came of it.

    Args:
        summary: What made a summary before it: ``carrying``, ``older`` or nothing (``""``).
        calls: The tools that it calls; without any, it thinks or speaks.
        result: What each of them returns.
    """

    summary: str
    calls: tuple[str, ...]
    result: str


STEPS = st.builds(
    Step,
    st.sampled_from(["", "", "", "older", "carrying"]),
    st.lists(st.sampled_from([*TOOLS, "read_artifact", "made_up"]), max_size=2).map(tuple),
    st.sampled_from(["short", "art_1a: long"]),
)
ENDS = st.sampled_from(
    [
        (TurnStatus.COMPLETED, StopReason.END_TURN),
        (TurnStatus.INCOMPLETE, StopReason.REFUSAL),
        (TurnStatus.INCOMPLETE, StopReason.MAX_STEPS),
        (TurnStatus.FAILED, StopReason.MODEL_ERROR),
        (TurnStatus.CANCELLED, StopReason.CANCELLED),
    ]
)
TURNS = st.tuples(st.sampled_from(AGENTS), st.lists(STEPS, max_size=4), ENDS, st.sampled_from("abcd"))


def since_carried(past: Sequence[PastTurn]) -> Sequence[PastTurn]:
    """As a store gives them."""
    return past[max((at for at, each in enumerate(past) if each.carried is not None), default=0) :]


def carrying_nothing(past: Sequence[PastTurn]) -> list[PastTurn]:
    """All of them, as if each summary were an older worker's."""
    return [replace(each, carried=None) for each in past]


def prompt_of(turn: Turn, agent: AgentSpec, past: Sequence[PastTurn], own: Sequence[Message], document: str) -> Prompt:
    """A step's, of a turn that was given a document."""
    passage = Passage(id=document, title=f"of turn {turn.number}", source="", text="")
    gathered = Gathered(pack=ContextPack(documents=(passage,) if is_unprepared(turn) else ()))
    named = (kept(agent, known_preparation(turn, past)) or ("t1", "t4")) if selects(agent) else ()
    return prepare(turn, agent, past=past, own=own, artifact_reader=READER, gathered=gathered, selected=named)


def prompts_of(turn: Turn, agent: AgentSpec, past: Sequence[PastTurn], own: Sequence[Message], document: str) -> Prompt:
    """The prompt, which is the same of all of the session."""
    prompt = prompt_of(turn, agent, () if turn.carried else since_carried(past), own, document)
    whole = replace(turn, carried=None)
    assert prompt == prompt_of(whole, agent, carrying_nothing(past), own, document)
    fork = replace(whole, first_step=turn.step, forked_from="origin")
    fork = adopt_past(Snapshot(turn=fork, calls=(), now=0.0), calls=()).result
    forked = prompt_of(fork, agent, since_carried(past), own, document)
    assert forked == prompt_of(fork, agent, carrying_nothing(past), own, document)
    return prompt


def summed_up(turn: Turn, prompt: Prompt, by: str) -> Turn:
    """The turn with a summary."""
    answer = AsideAnswer(text=f"summary {turn.number}.{turn.step}", is_stub=False)
    carried = compaction(prompt, turn, answer, prompt).carried if by == "carrying" else turn.carried
    return replace(turn, preparation=compacted(prompt, turn, answer), carried=carried)


def spoken(turn: Turn, step: Step) -> list[Message]:
    """A reply, and the results of its calls."""
    uses: list[dict[str, Any]] = [
        {"type": "tool_use", "id": f"{turn.step}.{at}", "name": name, "input": {}} for at, name in enumerate(step.calls)
    ]
    results: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": use["id"], "content": step.result} for use in uses
    ]
    said: list[dict[str, Any]] = [{"type": "thinking", "thinking": "hm", "signature": "s"}, *uses]
    return [Message(role="assistant", content=said), *([Message(role="user", content=results)] if results else [])]


@settings(max_examples=150)
@given(st.lists(TURNS, min_size=1, max_size=6))
def test_prompts_are_the_same_without_what_came_before_a_summary(turns: list[Any]) -> None:
    """Whoever made which summaries, whichever agents spoke, however their turns ended; in forks of any step too."""
    past: list[PastTurn] = []
    for number, (agent, steps, (status, reason), document) in enumerate(turns, 1):
        turn, own = a_turn(number=number, agent=agent.name), [Message(role="user", content="words")]
        for step in steps:
            prompt = prompts_of(turn, agent, past, own, document)
            if step.summary:
                turn = summed_up(turn, prompt, step.summary)
                prompt = prompts_of(turn, agent, past, own, document)
            own += spoken(turn, step)
            turn = replace(turn, step=turn.step + 1, preparation=prompt.preparation)
        past.append(
            PastTurn(
                status=status,
                output_text="",
                preparation=turn.preparation,
                messages=tuple(own),
                stop_reason=reason,
                carried=turn.carried,
            )
        )
