"""Which of many tools a session is offered: chosen once, kept, only ever appended to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from harness_worker.core.prompting.past import PastTurn
from harness_worker.core.prompting.prompt import prepare
from harness_worker.core.prompting.tool_selection import callable_tools, chosen, selects, words_of
from harness_worker.core.records import Message, TurnPreparation
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.registry import Registry
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.errors import ConfigError
from harness_worker.ports import Match
from harness_worker.turn.tool_selector import ToolSelector
from harness_worker.wire import GET_CONTEXT_PACK, TurnStatus
from tests.unit.builders import READER, a_turn
from tests.unit.engine_kit import TURN_ID, Engine, answers, asks


def nothing(_arguments: dict[str, Any]) -> str:
    """A tool's body."""
    return ""


def an_agent(tools: int, select_tools: int | None = 3, name: str = "agent") -> AgentSpec:
    """An agent with so many tools, from t0 on."""
    registry = Registry()
    for number in range(tools):
        registry.add_tool(nothing, name=f"t{number}", schema={"type": "object"}, description="A tool.")
    return registry.agent(name, model="m", tools=list(registry.tools), select_tools=select_tools)


def asked(*tools: str) -> Message:
    """The model asks for these tools."""
    return Message(role="assistant", content=[{"type": "tool_use", "id": "u", "name": t, "input": {}} for t in tools])


def answered(content: str) -> Message:
    """A call's result."""
    return Message(role="user", content=[{"type": "tool_result", "tool_use_id": "u", "content": content}])


def names(agent: AgentSpec, selected: Sequence[str], *messages: Message) -> tuple[str, ...]:
    """What a turn with this history is offered."""
    own = (Message(role="user", content="hello"), *messages)
    prompt = prepare(a_turn(), agent, past=(), own=own, artifact_reader=READER, selected=selected)
    assert prompt.preparation.offered == {agent.name: tuple(tool.name for tool in prompt.tools)}
    return tuple(tool.name for tool in prompt.tools)


@pytest.mark.parametrize(("tools", "limit", "expected"), [(26, 25, True), (25, 25, False), (26, None, False)])
def test_only_more_tools_than_wanted_are_selected_from(tools: int, limit: int | None, expected: bool) -> None:
    """Off, or with few tools, all are offered."""
    assert selects(an_agent(tools, limit)) is expected


@pytest.mark.parametrize("limit", [0, -1, 2.5, True, "all"])
def test_senseless_number_is_refused(limit: Any) -> None:  # noqa: ANN401
    """It is refused when the agent is declared."""
    with pytest.raises(ConfigError, match="select_tools must be a whole number, one or more"):
        an_agent(1, limit)


def test_best_are_chosen_in_the_order_of_their_declaration() -> None:
    """Those that do not fit at all fill the room that is left, the first before the others."""
    agent = an_agent(6)
    assert chosen(agent, [5, 2, 4, 0]) == ("t2", "t4", "t5")
    assert chosen(agent, [5]) == ("t0", "t1", "t5")
    assert chosen(agent, []) == ("t0", "t1", "t2")


def test_tool_for_documents_is_always_chosen() -> None:
    """The context teaches the model to look further with it."""
    agent = an_agent(4)
    vault = replace(agent.tools[0], name=GET_CONTEXT_PACK)
    assert chosen(replace(agent, tools=(*agent.tools, vault)), [3, 2, 1]) == ("t2", "t3", GET_CONTEXT_PACK)


def test_tool_is_found_by_its_name_description_and_arguments() -> None:
    """Everything that its author wrote about it counts."""
    registry = Registry()
    schema = {"type": "object", "properties": {"city": {"type": "string", "description": "Where to"}, "any": True}}
    registry.add_tool(nothing, name="get_weather", schema=schema, description="Tells the forecast.")
    assert words_of(registry.tools["get_weather"]).split() == [
        *("get_weather", "Tells", "the", "forecast."),
        *("city", "Where", "to", "any"),
    ]


def test_history_only_appends() -> None:
    """What the model asked for by name, and the reader of artifacts, stand behind what was chosen, as they came up."""
    agent, first = an_agent(9), ("t1", "t2", "t3")
    assert names(agent, first) == first
    assert names(agent, first, asked("t2", "t7")) == (*first, "t7")
    artifact = (asked("t7"), answered("art_0a: long"), asked("t5", "nonsense"), answered("x"))
    assert names(agent, first, *artifact) == (*first, "t7", "read_artifact", "t5")
    kept = names(agent, first, *artifact)
    assert names(agent, kept, *artifact, asked("t0")) == (*kept, "t0")


def test_tool_deployed_away_is_offered_no_more() -> None:
    """The others stay as they were."""
    assert names(an_agent(5), ("t1", "gone", "t3")) == ("t1", "t3")


def test_any_tool_of_the_agent_may_be_called() -> None:
    """Also one that is not offered; of what the harness adds, only what was."""
    agent = an_agent(5)
    shown = (agent.tools[3], READER)
    assert [tool.name for tool in callable_tools(agent, shown)] == ["t3", "read_artifact", "t0", "t1", "t2", "t4"]


def test_agents_of_one_session_keep_their_own() -> None:
    """What one was offered is carried through the turns of another, whether that one selects or not."""
    mine, other, few = an_agent(5), an_agent(5, name="other"), an_agent(2, name="few")

    def after(known: TurnPreparation | None, agent: AgentSpec, selected: Sequence[str]) -> TurnPreparation:
        past = PastTurn(status=TurnStatus.COMPLETED, output_text="", preparation=known, messages=())
        return prepare(a_turn(), agent, past=(past,), own=(), artifact_reader=READER, selected=selected).preparation

    first = after(None, mine, ("t4", "t1", "t2"))
    last = after(after(first, few, ()), other, ("t0", "t1", "t2"))
    assert last.offered == {"agent": ("t4", "t1", "t2"), "other": ("t0", "t1", "t2")}
    assert TurnPreparation.from_record({"context": [], "prefix_hash": "p"}).offered == {}
    assert TurnPreparation.from_record({"context": [], "prefix_hash": "p", "offered": {"a": ["b"]}}).offered == {
        "a": ("b",)
    }


# --- on the engine


@dataclass(slots=True)
class Ranked:
    """Implements ``ports.Retriever`` and its index: the last texts first; notes what it is asked."""

    queries: list[str] = field(default_factory=list[str])
    texts: list[Sequence[str]] = field(default_factory=list[Sequence[str]])

    def index(self, texts: Sequence[str]) -> Ranked:
        """See ``ports.Retriever.index``."""
        self.texts.append(texts)
        return self

    def search(self, query: str, limit: int) -> tuple[Match, ...]:
        """See ``ports.TextIndex.search``."""
        self.queries.append(query)
        places = reversed(range(len(self.texts[-1])))
        return tuple(Match(position=place, score=1.0) for place in places)[:limit]


def selecting(limit: int | None) -> tuple[Engine, Ranked]:
    """An engine with four tools whose agent selects among them."""
    effects = dict.fromkeys(("one", "two", "three", "four"), Effect.READ_ONLY)
    engine, ranked = Engine(**effects), Ranked()
    agents = {name: replace(agent, select_tools=limit) for name, agent in engine.coordinator.agents.items()}
    step = replace(engine.coordinator.model_step, selector=ToolSelector(lambda: ranked))
    object.__setattr__(engine.coordinator, "agents", agents)
    object.__setattr__(engine.coordinator, "model_step", step)
    return engine, ranked


def sent(engine: Engine) -> list[list[str]]:
    """The tools of each model call so far."""
    return [[tool.name for tool in request.tools] for request in engine.model.requests]


def test_unlisted_tool_runs_and_is_appended() -> None:
    """Its call is judged by the agent's whole list; from then on it is offered, behind the others."""
    engine, ranked = selecting(2)
    engine.dispatched("one")
    engine.run()
    engine.says(answers("ok"))
    engine.advance()
    assert engine.contents == ["one done"]
    assert sent(engine) == [["three", "four"], ["three", "four", "one"]]
    assert engine.turn.preparation is not None
    assert engine.turn.preparation.offered == {"agent": ("three", "four", "one")}
    assert ranked.queries == ["hello"]


def test_later_turns_of_the_session_are_offered_the_same() -> None:
    """Whatever their words are: nothing is chosen again."""
    engine, ranked = selecting(2)
    engine.says(answers("ok"), answers("so"))
    engine.advance()
    engine.store.insert_turn(replace(a_turn(), id="next", input="other words"))
    engine.coordinator.advance("next")
    assert sent(engine) == [["three", "four"], ["three", "four"]]
    assert len(ranked.queries) == 1
    assert engine.store.events[-1].type == "turn.completed"
    told = [event.data for event in engine.store.events if event.type == "model.completed"]
    assert [data.get("cache_break") for data in told] == [None, None]


def test_session_whose_tools_were_all_deployed_away_is_offered_others() -> None:
    """They are chosen by the words of its next turn, and kept from then on; else it would have no tool for good."""
    engine, ranked = selecting(2)
    engine.says(answers("ok"), answers("so"))
    engine.advance()
    (agent,) = engine.coordinator.agents.values()
    engine.agent_is(tools=tuple(replace(tool, name=f"new_{tool.name}") for tool in agent.tools))
    engine.store.insert_turn(replace(a_turn(), id="next", input="other words"))
    engine.coordinator.advance("next")
    assert sent(engine) == [["three", "four"], ["new_three", "new_four"]]
    assert ranked.queries == ["hello", "other words"]
    assert (prepared := engine.store.turns["next"].preparation) is not None
    assert prepared.offered == {"agent": ("new_three", "new_four")}


def test_redelivered_step_is_sent_the_same() -> None:
    """A coordinator that died before its commit is followed by one that chooses alike."""
    engine, _ = selecting(2)

    class Died(BaseException):
        """The process is gone."""

    engine.says(Died(), answers("ok"))
    with pytest.raises(Died):
        engine.advance()
    engine.clock.wait(30.0)
    engine.advance()
    assert sent(engine) == [["three", "four"]] * 2
    assert engine.store.turns[TURN_ID].status is TurnStatus.COMPLETED


@pytest.mark.parametrize("limit", [None, 4])
def test_agent_that_does_not_select_pays_nothing(limit: int | None) -> None:
    """All its tools are offered, and nothing is indexed."""
    engine, ranked = selecting(limit)
    engine.says(asks("one"))
    engine.advance()
    assert sent(engine) == [["one", "two", "three", "four"]]
    assert (ranked.texts, engine.turn.preparation and engine.turn.preparation.offered) == ([], {})
