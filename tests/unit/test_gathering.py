"""Loading memory and context pack for a turn, both at the same time, without ever blocking it (A2, A3, A15)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from harness_worker.core.memory.memories import Memory, MemoryKind
from harness_worker.core.prompting.prompt import Gathered
from harness_worker.core.records import CallStatus
from harness_worker.core.registration.hooks import Hooks, TurnEnd, TurnStart, UsageReport
from harness_worker.core.run_context import RunContext
from harness_worker.core.sources.context_pack import ContextPack, Passage
from harness_worker.errors import ToolError, ToolTransientError, TransientError
from harness_worker.ports import Match, TextIndex, ignore
from harness_worker.turn.finalizer import Finalizer
from harness_worker.turn.gathering import Gathering, PackFinder
from harness_worker.wire import StopReason, TurnStatus
from tests.unit.builders import NOW, a_turn
from tests.unit.engine_kit import TURN_ID, Engine, SetClock, SetStop, answers, asks, raising

ANN = Memory(kind=MemoryKind.FACT, text="my name is Ann")
TEA = Memory(kind=MemoryKind.PREFERENCE, text="I like tea")
REFUNDS = Passage(id="r.md#1", title="Refunds", source="r.md", text="Within 30 days.")
PACK = ContextPack(preferences=("be brief", "I like tea"), documents=(REFUNDS,))


class Memories:
    """Implements ``ports.MemoryStore`` with what a function returns."""

    def __init__(self, load: Callable[[], tuple[Memory, ...]]) -> None:
        self.load = load
        self.asked: list[tuple[str, str]] = []

    def recall(self, tenant: str, scope: str, limit: int) -> tuple[Memory, ...]:
        """See ``ports.MemoryStore.recall``."""
        self.asked.append((tenant, scope))
        return self.load()[:limit]


class OneVault:
    """Implements ``ports.Vault`` with what a function returns."""

    def __init__(self, load: Callable[[], ContextPack]) -> None:
        self.load = load
        self.asked: list[str] = []

    def pack(self, query: str, limit: int) -> ContextPack:
        """See ``ports.Vault.pack``."""
        self.asked.append(query)
        found = self.load()
        return replace(found, documents=found.documents[:limit])


class LastFirst:
    """Implements ``ports.Retriever`` and ``ports.TextIndex``: only the last text fits."""

    def __init__(self, texts: Sequence[str] = ()) -> None:
        self._texts = texts

    def index(self, texts: Sequence[str]) -> TextIndex:
        """See ``ports.Retriever.index``."""
        return LastFirst(texts)

    def search(self, query: str, limit: int) -> tuple[Match, ...]:  # noqa: ARG002 - the port's signature
        """See ``ports.TextIndex.search``."""
        return (Match(position=len(self._texts) - 1, score=1.0),) if self._texts else ()


class Passing(SetClock):
    """A clock on which every look takes a second; by the first one the memory has been loaded."""

    def monotonic(self) -> float:
        """A second later."""
        for thread in threading.enumerate():
            if thread.name == "memory":
                thread.join()
        self.wait(1.0)
        return self.now_s


def a_stop(*, told: bool = False) -> SetStop:
    """A stop signal, set or not."""
    return SetStop(SetClock(), told)


def remembering(engine: Engine, **options: Any) -> None:  # noqa: ANN401 - an agent's fields
    """Give the engine's agent a memory, a vault, or both."""
    agents: Any = engine.coordinator.agents
    (name,) = agents
    changed = {name: replace(agents[name], **options)}
    driving = engine.coordinator
    finalizer = Finalizer(
        agents=changed,
        store=driving.store,
        hooks=engine.hooks,
        dispatcher=driving.dispatcher,
        on_failure=engine.failed,
        trace=ignore,
    )
    object.__setattr__(engine.coordinator, "agents", changed)
    object.__setattr__(engine.coordinator, "finalizer", finalizer)


def gathering(
    memories: Callable[[], tuple[Memory, ...]],
    pack: Callable[[], ContextPack],
    clock: Any = None,  # noqa: ANN401
) -> Gathering:
    """A ``Gathering`` that loads with these functions, for the agent of the tests' engine."""
    return Gathering(
        memories=Memories(memories),
        vaults={"agent": OneVault(pack)},
        retriever=LastFirst(),
        clock=clock or SetClock(),
        timeout_s=5.0,
    )


def gather(loads: Gathering, *, remaining_s: float = 60.0, stop: SetStop | None = None) -> Gathered:
    """What it loads for an agent with a memory."""
    agent = replace(Engine().coordinator.agents["agent"], memory=True)
    return loads.gather(a_turn(), agent, remaining_s=remaining_s, stop=stop or a_stop())


def test_parts_are_loaded_at_the_same_time() -> None:
    """Each part waits for the other to be under way, so one after the other neither would end."""
    meet = threading.Barrier(2, timeout=60)

    def met(value: Any) -> Callable[[], Any]:  # noqa: ANN401 - either part
        return lambda: (meet.wait(), value)[1]

    found = gather(gathering(met((ANN,)), met(PACK)))
    assert (found.facts, found.pack.documents, found.left_out) == (("my name is Ann",), (REFUNDS,), ())


def test_preferences_in_memory_join_the_pack() -> None:
    """A3: they follow the pack's own, each once; facts that fit come before newer ones."""
    bob = replace(ANN, text="my dog is Bob")
    found = gather(gathering(lambda: (TEA, bob, replace(TEA, text="I hate milk"), ANN), lambda: PACK))
    assert found.pack.preferences == ("be brief", "I like tea", "I hate milk")
    assert found.facts == ("my name is Ann", "my dog is Bob")


def test_part_that_fails_is_left_out_and_named(caplog: pytest.LogCaptureFixture) -> None:
    """The other part is loaded, and both the log and the preparation say what is missing."""
    with caplog.at_level(logging.WARNING):
        found = gather(gathering(raising(TransientError("the database is away")), lambda: PACK))
    assert (found.facts, found.pack) == ((), PACK)
    assert found.left_out == ("memory: TransientError: the database is away",)
    assert "turn turn goes on without its memory: TransientError: the database is away" in caplog.text


@pytest.mark.usefixtures("no_threads")
def test_parts_are_left_out_when_there_are_no_threads_to_load_them() -> None:
    """The turn goes on without them."""
    reason = "RuntimeError: can't start new thread"
    found = gather(gathering(lambda: (ANN,), lambda: PACK))
    assert found.left_out == (f"memory: {reason}", f"context pack: {reason}")


@pytest.mark.parametrize(("remaining_s", "waited_s"), [(60.0, 5.0), (2.0, 2.0)])
def test_part_that_takes_too_long_is_left_out(remaining_s: float, waited_s: float) -> None:
    """The turn waits as long as the setting says and it has time; nobody, not even an exit, waits for the rest."""
    over, clock = threading.Event(), Passing()
    try:
        found = gather(gathering(lambda: (ANN,), lambda: (over.wait(30), PACK)[1], clock), remaining_s=remaining_s)
        assert {thread.daemon for thread in threading.enumerate() if thread.name == "context pack"} == {True}
    finally:
        over.set()
    assert clock.now_s == NOW + 1.0 + waited_s  # the first look begins the wait
    assert (found.facts, found.pack, found.left_out) == (
        ("my name is Ann",),
        ContextPack(),
        ("context pack: it took too long",),
    )


def test_stop_ends_the_wait() -> None:
    """A cancelled turn does not wait for what it will not need."""
    over = threading.Event()
    try:
        found = gather(gathering(lambda: (over.wait(30), (ANN,))[1], lambda: PACK), stop=a_stop(told=True))
    finally:
        over.set()
    assert found.facts == ()


def test_agent_that_knows_nothing_loads_nothing() -> None:
    """For an agent without memory and vault nothing is asked, and no thread is started."""
    loads = gathering(lambda: (ANN,), lambda: PACK)
    other = replace(loads, vaults={})
    agent = Engine().coordinator.agents["agent"]
    before = set(threading.enumerate())
    assert other.gather(a_turn(), agent, remaining_s=60.0, stop=a_stop()) == Gathered()
    assert set(threading.enumerate()) <= before
    assert loads.memories.asked == []  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


def test_documents_are_looked_up_in_the_vault_of_the_agent_that_asks() -> None:
    """A vault that is away may be there soon; an agent without one need not ask again."""
    finder = PackFinder(vaults={"here": OneVault(lambda: PACK), "away": OneVault(raising(TransientError("no disk")))})
    assert finder("refund", 1, RunContext.for_tests(agent="here")) == PACK
    with pytest.raises(ToolTransientError, match="the documents cannot be read now; try again"):
        finder("refund", 1, RunContext.for_tests(agent="away"))
    with pytest.raises(ToolError, match="this agent has no documents") as refused:
        finder("refund", 1, RunContext.for_tests(agent="other"))
    assert not refused.value.retryable


class Recorded(Hooks):
    """A hook that records the stages of a turn."""

    def __init__(self, stages: list[str]) -> None:
        self.stages = stages

    def on_turn_start(self, event: TurnStart) -> None:
        """Note it."""
        self.stages.append(f"on_turn_start {event.input}")

    def on_usage(self, event: UsageReport) -> None:
        """Note it."""
        self.stages.append(f"on_usage {event.used.steps}")

    def on_turn_end(self, event: TurnEnd) -> None:
        """Note it."""
        self.stages.append(f"on_turn_end {event.status.value}")


def engine_with(loads: Gathering, *hooks: Hooks) -> Engine:
    """The engine, whose agent has a memory and a vault."""
    engine = Engine(*hooks)
    remembering(engine, memory=True)
    step = replace(engine.coordinator.model_step, gathering=loads)
    object.__setattr__(engine.coordinator, "model_step", step)
    return engine


def test_turn_passes_its_stages_in_order() -> None:
    """A2: it is claimed, started, loaded once, asked within its budget, closed and finalized."""
    stages: list[str] = []
    note = stages.append
    engine = engine_with(gathering(lambda: (note("load"), (ANN,))[1], lambda: PACK), Recorded(stages))
    engine.seen_gate.before["raise_fence"] += [lambda: note(f"claimed {engine.turn.fence}")]

    def said(reply: Any) -> Callable[[], Any]:  # noqa: ANN401 - a reply
        return lambda: (note(f"asked {engine.turn.step}"), reply)[1]

    engine.says(said(asks("look")), said(answers("ok")))
    engine.advance()
    engine.run()
    engine.seen_gate.before["close"] += [lambda: note(f"close writes, {engine.turn.status.value}")]
    engine.advance()
    assert stages == [
        "claimed 1",
        "on_turn_start hello",
        "load",
        "asked 0",
        "asked 1",
        "close writes, running",
        "on_usage 2",
        "on_turn_end completed",
    ]


def test_what_was_loaded_is_kept_with_the_turn_and_sent_again() -> None:
    """A6: memory, then untrusted text, come between metadata and the user's words, in every step alike."""
    packs = iter([PACK])
    engine = engine_with(gathering(lambda: (ANN,), lambda: next(packs)))
    engine.says(asks("look"), answers("By [doc:r.md#1], not [doc:r.md#2]."))
    engine.advance()
    engine.run()
    engine.advance()
    first, second = (request.messages[0].content for request in engine.model.requests)
    assert first == second
    starts = [block["text"].partition("\n")[0] for block in first]
    assert starts == ["<runtime_metadata>", "<memory>", "<untrusted_context>", "hello"]
    assert [citation.id for citation in engine.turn.citations] == ["r.md#1"]
    assert [each["id"] for each in engine.store.events[-1].data["citations"]] == ["r.md#1"]


def test_what_could_not_be_loaded_is_told_by_the_preparation() -> None:
    """The turn goes on without it."""
    engine = engine_with(gathering(raising(ValueError("broken")), lambda: PACK))
    engine.says(answers("ok"))
    engine.advance()
    assert engine.turn.status is TurnStatus.COMPLETED
    assert engine.turn.preparation is not None
    assert engine.turn.preparation.left_out == ("memory: ValueError: broken",)


def test_time_of_loading_is_the_turns_own() -> None:
    """The model has as much less time as loading took."""
    engine = Engine()
    engine.clock.now_s = 1_000.0
    loads = gathering(lambda: (engine.clock.wait(59.5), (ANN,))[1], lambda: PACK, engine.clock)
    engine = engine_on(engine, loads)
    engine.says(answers("ok"))
    engine.advance()
    assert engine.model.requests[0].timeout_s <= 0.5


def engine_on(engine: Engine, loads: Gathering) -> Engine:
    """The same engine, whose agent has a memory."""
    remembering(engine, memory=True)
    object.__setattr__(
        engine.coordinator,
        "model_step",
        replace(engine.coordinator.model_step, gathering=replace(loads, timeout_s=60.0)),
    )
    return engine


@pytest.mark.parametrize(
    ("reply", "remembered"),
    [
        (answers("ok"), ["I like tea"]),
        (replace(answers("o"), stop_reason="max_tokens"), ["I like tea"]),
        (RuntimeError("bug"), []),
    ],
)
def test_turn_that_was_answered_is_remembered_once(reply: Any, remembered: list[str]) -> None:  # noqa: ANN401 - any reply
    """The commit of its end adds memories, cut short or not; a failed turn adds none, and neither do later looks."""
    engine = Engine()
    remembering(engine, memory=True)
    engine.store.turns[TURN_ID] = replace(engine.turn, input="Hi. I like tea.")
    engine.says(reply)
    engine.advance()
    engine.advance()
    assert [memory.text for _, memory in engine.store.memories] == remembered


def overtaken_by(reply: Any) -> Engine:  # noqa: ANN401 - a reply
    """The engine after a visit whose model answered only once another visit, with ``reply``, had overtaken it."""
    engine = engine_with(gathering(lambda: (), lambda: PACK))
    engine.store.turns[TURN_ID] = replace(engine.turn, input="I like tea.")

    def late() -> Any:  # noqa: ANN401 - a reply
        engine.clock.wait(30.0)
        engine.says(reply)
        engine.advance()
        return answers("Late [doc:r.md#1].")

    engine.says(late)
    engine.advance()
    return engine


def test_commit_of_a_zombie_leaves_no_memory_and_no_citation() -> None:
    """A15: a visit that was overtaken meanwhile writes nothing; the one that ends the turn writes once."""
    engine = overtaken_by(answers("Mine."))
    assert (engine.turn.output_text, engine.turn.citations) == ("Mine.", ())
    assert [memory.text for _, memory in engine.store.memories] == ["I like tea"]


def test_zombie_does_not_end_a_turn_that_another_visit_goes_on_with() -> None:
    """A15: the other visit waits for tools when the late answer comes, which changes nothing."""
    engine = overtaken_by(asks("look"))
    assert (engine.turn.status, engine.turn.output_text, engine.turn.citations) == (TurnStatus.RUNNING, "", ())
    assert engine.store.memories == []
    assert [call.status for call in engine.calls] == [CallStatus.PENDING]


def test_cancelled_turn_leaves_no_memory() -> None:
    """Nothing is remembered of a turn that was cancelled."""
    engine = Engine()
    remembering(engine, memory=True)
    engine.store.turns[TURN_ID] = replace(engine.turn, input="I like tea.")
    engine.store.cancel(TURN_ID)
    engine.advance()
    assert (engine.turn.stop_reason, engine.store.memories) == (StopReason.CANCELLED, [])


@pytest.mark.parametrize("stop_reason", ["max_tokens", "refusal"])
def test_reply_that_was_cut_short_cites_nothing(stop_reason: str) -> None:
    """Only an answer has citations; this turn, its last event and its text have none."""
    engine = engine_with(gathering(lambda: (), lambda: PACK))
    remembering(engine, show_citations=True)
    engine.says(replace(answers("By [doc:r.md#1] and als"), stop_reason=stop_reason))
    engine.advance()
    assert (engine.turn.output_text, engine.turn.citations) == ("By [doc:r.md#1] and als", ())
    assert "citations" not in engine.store.events[-1].data


def test_sources_are_listed_where_the_agent_shows_them() -> None:
    """They follow the answer in the turn's text; the model's own message stays unchanged."""
    engine = engine_with(gathering(lambda: (), lambda: PACK))
    remembering(engine, show_citations=True)
    engine.says(answers("By [doc:r.md#1]."))
    engine.advance()
    assert engine.turn.output_text == "By [doc:r.md#1].\n\nSources:\n- Refunds: r.md#1"
    assert engine.store.history(TURN_ID)[-1].content == [{"type": "text", "text": "By [doc:r.md#1]."}]
