"""Memories that a model finds after a turn, on both databases: each is written once, whoever dies."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, insert

from harness_worker import Registry
from harness_worker.adapters.sql.memories import SqlMemories
from harness_worker.adapters.sql.scores import SqlScores
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.ending import end_turn
from harness_worker.core.memory.memories import Memory, MemoryKind, Remembered
from harness_worker.core.scoring.scores import LAPSES_S, ScoreRow, begin_judging
from harness_worker.core.sealing import with_judges, with_memories
from harness_worker.errors import ModelError, TransientError
from harness_worker.schema import scores
from harness_worker.turn.judging import JudgeLook, Judging
from harness_worker.wire import MEMORY, StopReason, TurnStatus
from tests.contract.store_world import World
from tests.unit.engine_kit import Sent, SetClock, ToldModel, answers

TEA = {"kind": "preference", "text": "prefers tea"}
ANN = {"metadata": {"user": "ann"}}


@dataclass(slots=True)
class Bench:
    """Turns of an agent with a model that finds memories."""

    world: World
    model: ToldModel = field(default_factory=ToldModel)
    registry: Registry = field(default_factory=Registry)

    def __post_init__(self) -> None:
        self.registry.agent("guide", model="large", memory="small")

    @property
    def scores(self) -> SqlScores:
        """Where it is due."""
        return SqlScores(self.world.engine)

    @property
    def judging(self) -> Judging:
        """Asks the model."""
        return Judging(
            store=self.world.store,
            scores=self.scores,
            judges={},
            models={"": self.model},
            agents=self.registry.agents,
            memories=SqlMemories(self.world.engine),
            clock=SetClock(),
        )

    def over(self, said: str = "I like tea.", status: TurnStatus = TurnStatus.COMPLETED, agent: str = "guide") -> str:
        """A turn that ended as the finalizer ends it; its id."""
        turn_id = self.world.queued(agent=agent, input=said, **ANN)

        def end(snapshot: Snapshot) -> Decision[None]:
            over = end_turn(snapshot.turn, status, StopReason.END_TURN, now=snapshot.now)
            agent = self.registry.agents.get(over.agent)
            return with_memories(with_judges(Decision(result=None, turn=over), over, agent), over, agent)

        self.world.store.transact(turn_id, end)
        return turn_id

    def known(self) -> list[str]:
        """What is remembered of Ann."""
        return [memory.text for memory in SqlMemories(self.world.engine).recall("default", "user:ann", 9)]


@pytest.fixture
def bench(world: World) -> Bench:
    """A bench with an empty journal."""
    return Bench(world)


def notes(*memories: dict[str, str]) -> str:
    """The model's reply."""
    return json.dumps({"memories": memories})


def lease_over(row: ScoreRow, now: float) -> tuple[ScoreRow, None]:
    """Let the lease of the attempt under way end, and make the search due."""
    return replace(row, lease_until=now - 1, due_at=now - 1), None


def test_model_is_asked_for_the_users_words_alone(bench: Bench) -> None:
    """It gets them once, with what is known already; no rules are used, and no score is shown."""
    bench.model.asides += [answers(notes(TEA)), answers(notes())]
    first = bench.over()
    assert bench.known() == []
    bench.judging.judge(first, MEMORY)
    bench.judging.judge(first, MEMORY)
    assert bench.known() == ["prefers tea"]
    assert bench.scores.of_turn(first) == ()
    bench.judging.judge(bench.over("Where is the museum?"), MEMORY)
    assert bench.known() == ["prefers tea"]
    (asked, again) = bench.model.requests
    assert (asked.model, asked.kind, asked.tools, asked.step) == ("small", "memory", (), 0)
    assert [message.content for message in (*asked.messages, *again.messages)] == [
        '{"known": [], "said": "I like tea."}',
        '{"known": ["prefers tea"], "said": "Where is the museum?"}',
    ]


@pytest.mark.parametrize("status", [TurnStatus.FAILED, TurnStatus.CANCELLED])
def test_turn_without_an_answer_leaves_none(bench: Bench, status: TurnStatus) -> None:
    """No model is asked."""
    bench.judging.judge(bench.over(status=status), MEMORY)
    assert bench.model.requests == []


def test_message_about_no_turn_is_dropped(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A stranger may have sent it, as with a judge's message."""
    bench.judging.judge("nobody", MEMORY)
    assert "judge :memory of turn nobody is not served here" in caplog.text


def test_lost_message_is_made_up_for(bench: Bench) -> None:
    """The row is due, so a worker with such an agent sends the message again, and no other worker does."""
    turn_id, sent = bench.over(), Sent()
    bench.scores.change(turn_id, MEMORY, lease_over)
    others = replace(bench.judging, agents={})
    assert others.duties == frozenset()
    others.judge(turn_id, MEMORY)
    assert bench.scores.change(turn_id, MEMORY, lambda row, _: (row, row.attempt)) == 0
    JudgeLook(scores=bench.scores, dispatcher=sent, duties=bench.judging.duties)()
    assert sent.judged == [(turn_id, MEMORY)]


class Later(SqlScores):
    """Scores, seen some time later."""

    def __init__(self, engine: Engine, later_s: float) -> None:
        super().__init__(engine)
        self.later_s = later_s

    def change(self, turn_id: str, judge: str, rule: Any, found: Remembered | None = None) -> Any:  # noqa: ANN401
        """See ``ports.Scores.change``."""
        return super().change(turn_id, judge, lambda row, now: rule(row, now + self.later_s), found)


@pytest.mark.parametrize(("later_s", "is_due"), [(LAPSES_S - 60, True), (LAPSES_S, False)])
@pytest.mark.parametrize("agents", [("other",), ("guide", "other")])
def test_memories_that_no_agent_finds_any_more_are_not_looked_for_for_ever(
    bench: Bench, agents: tuple[str, ...], later_s: float, is_due: bool
) -> None:
    """If no agent with that model is deployed any more, the search is given up after a day."""
    turn_id, sent = bench.over(), Sent()
    deployed = Registry()
    for agent in agents:
        deployed.agent(agent, model="large", memory="small" if agent == "other" else False)
    later = Later(bench.world.engine, later_s)
    judging = replace(bench.judging, agents=deployed.agents, scores=later)
    judging.judge(turn_id, MEMORY)
    assert bench.scores.change(turn_id, MEMORY, lambda row, _: (row, row.at is None)) is is_due
    if is_due:
        bench.scores.change(turn_id, MEMORY, lease_over)
    JudgeLook(scores=bench.scores, dispatcher=sent, duties=judging.duties)()
    assert bool(sent.judged) is is_due


def test_memories_that_are_being_looked_for_are_not_given_up(bench: Bench) -> None:
    """Even after a day, a search that another worker has taken up continues."""
    turn_id = bench.over()
    later = Later(bench.world.engine, LAPSES_S)
    assert later.change(turn_id, MEMORY, partial(begin_judging, judge_s=30.0)) is not None
    replace(bench.judging, agents={}, scores=later).judge(turn_id, MEMORY)
    assert bench.scores.change(turn_id, MEMORY, lambda row, _: (row, row.at is None))


def test_score_is_not_given_up_where_its_judge_is_unknown(bench: Bench) -> None:
    """A score is looked for only where its judge is served; a worker of another version leaves it, however old."""
    turn_id = bench.over()
    with bench.world.engine.begin() as connection:
        connection.execute(insert(scores).values(turn_id=turn_id, judge="brief", due_at=1.0))
    replace(bench.judging, scores=Later(bench.world.engine, LAPSES_S)).judge(turn_id, "brief")
    assert bench.scores.change(turn_id, "brief", lambda row, _: (row, row.at is None))


def test_model_that_fails_is_asked_again_and_given_up_at_last(bench: Bench) -> None:
    """It is asked three times; then nothing is remembered of that turn."""
    bench.model.asides += [ModelError("refused"), answers("tea!"), answers(notes(TEA))]
    turn_id = bench.over()
    bench.judging.judge(turn_id, MEMORY)
    bench.judging.judge(turn_id, MEMORY)
    assert bench.known() == []
    bench.judging.judge(turn_id, MEMORY)
    assert bench.known() == ["prefers tea"]


def test_provider_that_fails_in_passing_costs_no_memory(bench: Bench) -> None:
    """The model is asked again at once, as in a turn."""
    bench.model.asides += [TransientError("busy", retry_after_s=1.0), answers(notes(TEA))]
    bench.judging.judge(bench.over(), MEMORY)
    assert bench.known() == ["prefers tea"]


def test_word_that_comes_late_is_not_remembered(bench: Bench) -> None:
    """If a process stalls and another one takes over, the memories found by both are neither doubled nor mixed."""
    turn_id = bench.over()

    def overtaken() -> str:
        bench.scores.change(turn_id, MEMORY, lease_over)
        assert bench.scores.change(turn_id, MEMORY, partial(begin_judging, judge_s=30.0)) == 2
        return notes(TEA)

    bench.model.asides.append(lambda: answers(overtaken()))
    bench.judging.judge(turn_id, MEMORY)
    assert bench.known() == []


def test_rules_and_model_share_what_they_find(bench: Bench) -> None:
    """A tenant's agents share a user's memories, however each of them finds memories."""
    bench.registry.agent("plain", model="large", memory=True)
    bench.over("I like tea.", agent="plain")
    assert SqlMemories(bench.world.engine).recall("default", "user:ann", 9) == (
        Memory(kind=MemoryKind.PREFERENCE, text="I like tea"),
    )
    bench.model.asides.append(answers(notes(TEA)))
    bench.judging.judge(bench.over(), MEMORY)
    assert bench.known() == ["prefers tea", "I like tea"]
