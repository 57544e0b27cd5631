"""A model's text on its way to those who watch, and when a failed call is tried again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from harness_worker.bootstrap.retrieval import make_retriever
from harness_worker.core.budget import Usage
from harness_worker.core.registration.hooks import Hooks, StreamChunk
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.errors import TransientError
from harness_worker.ports import ModelReply, ModelRequest, ignore
from harness_worker.turn.deltas import BATCH_CHARS, Deltas
from harness_worker.turn.hooking import HookCaller
from harness_worker.turn.model_step import ModelStep
from harness_worker.turn.tool_selector import ToolSelector
from tests.unit.builders import READER, a_held_turn
from tests.unit.hook_kit import Recorder
from tests.unit.memory_store import MemoryTurnStore

REPLY = ModelReply(content=({"type": "text", "text": "Hi"},), stop_reason="end_turn", usage=Usage())


@dataclass(slots=True)
class Time:
    """A clock that stands still unless something waits."""

    now_s: float = 100.0
    naps: list[float] = field(default_factory=list[float])

    def monotonic(self) -> float:
        """Now."""
        return self.now_s

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds

    def nap(self, timeout: float | None = None) -> bool:
        """A stop signal's wait: notes how long, and nobody says stop."""
        self.naps.append(timeout or 0.0)
        self.now_s += timeout or 0.0
        return False


class Heard:
    """What was hinted."""

    def __init__(self) -> None:
        self.all: list[tuple[str, str, Mapping[str, Any]]] = []

    def hint(self, turn_id: str, kind: str, data: Mapping[str, Any]) -> None:
        """Note it."""
        self.all.append((turn_id, kind, data))

    def texts(self) -> list[str]:
        """The pieces."""
        return [data["text"] for _, _, data in self.all]


def test_deltas_go_at_once_then_no_more_often_than_every_twentieth_of_a_second() -> None:
    """The first piece is not held back; those that follow closely are gathered; nothing is lost at the end."""
    time, heard = Time(), Heard()
    deltas = Deltas(heard.hint, time, turn_id="t", step=2, attempt=1)
    for piece in ("a", "b", "c"):
        deltas.take(piece)
    time.wait(0.06)
    deltas.take("d")
    deltas.take("e")
    deltas.flush()
    deltas.flush()
    assert heard.texts() == ["a", "bcd", "e"]
    assert heard.all[0] == ("t", "model.delta", {"step": 2, "attempt": 1, "start": 0, "text": "a"})
    assert [data["start"] for _, _, data in heard.all] == [0, 1, 4]


def test_deltas_are_bounded_by_characters_too() -> None:
    """A fast model does not make hints of any length."""
    time, heard = Time(), Heard()
    deltas = Deltas(heard.hint, time, turn_id="t", step=0, attempt=1)
    for _ in range(BATCH_CHARS + 1):
        deltas.take("xx")
    assert [len(text) for text in heard.texts()] == [2, BATCH_CHARS, BATCH_CHARS]


class Stop(threading.Event):
    """A signal on which waiting takes no time."""

    def __init__(self, time: Time) -> None:
        super().__init__()
        self._time = time

    def wait(self, timeout: float | None = None) -> bool:
        """Pass the time at once."""
        return self._time.nap(timeout)


@dataclass(slots=True)
class Model:
    """Says and fails as the test wants, by the number of the try."""

    act: Callable[[int, ModelRequest], ModelReply]
    tries: int = 0

    def complete(self, request: ModelRequest) -> ModelReply:
        """The next try."""
        self.tries += 1
        return self.act(self.tries, request)


def ask(model: Model, time: Time, heard: Heard, *hooks: Hooks) -> ModelReply:
    """Ask for one step of a turn, of an agent with these hooks."""
    store = MemoryTurnStore(time.monotonic)
    store.insert_turn(a_held_turn(id="t"))
    turn = store.turns["t"]
    step = ModelStep(
        store=store,
        models={"": model},
        clock=time,
        timeout_s=60.0,
        hint=heard.hint,
        hooks=HookCaller(ignore),
        artifact_reader=READER,
        gathering=None,
        selector=ToolSelector(make_retriever),
    )
    agent = AgentSpec(name="a", model="claude", system="", tools=(), hooks=hooks)
    stop = Stop(time)
    prompt = step.prepare(turn, agent, remaining_s=60.0, stop=stop)
    return step.ask(turn, agent, prompt, remaining_s=60.0, stop=stop)


def test_step_that_is_asked_again_says_so_in_its_hints() -> None:
    """Text of a try that failed is shown and not taken back: the next try's pieces have a higher ``attempt``."""

    def act(number: int, request: ModelRequest) -> ModelReply:
        request.on_text("one ")
        request.on_text("two")
        if number == 1:
            raise TransientError("cut")
        return REPLY

    heard = Heard()
    assert ask(Model(act), Time(), heard) == REPLY
    shown = [(data["attempt"], data["text"]) for _, _, data in heard.all]
    assert shown == [(1, "one "), (1, "two"), (2, "one "), (2, "two")]


def test_text_is_shown_to_hooks_and_watchers_alike() -> None:
    """A hook that hears the text takes it from nobody."""

    def act(_number: int, request: ModelRequest) -> ModelReply:
        request.on_text("hello")
        return REPLY

    heard, recorder = Heard(), Recorder()
    ask(Model(act), Time(), heard, recorder)
    assert [data["text"] for _, _, data in heard.all] == ["hello"]
    assert [chunk.text for chunk in recorder.of(StreamChunk)] == ["hello"]


@pytest.mark.parametrize(("wish_s", "least_s"), [(None, 0.0), (7.0, 7.0), (20.0, 20.0)])
def test_step_waits_at_least_as_long_as_the_provider_asks(wish_s: float | None, least_s: float) -> None:
    """``retry-after`` outdoes our own backoff, also above its cap."""

    def act(number: int, _request: ModelRequest) -> ModelReply:
        if number == 1:
            raise TransientError("busy", retry_after_s=wish_s)
        return REPLY

    time = Time()
    assert ask(Model(act), time, Heard()) == REPLY
    assert len(time.naps) == 1
    assert least_s <= time.naps[0] <= max(least_s, 8.0)
