"""Telling turns as traces beside everything else: bounded, in a thread of its own, never in a turn's way."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from harness_worker.core.tracing.trace import Trace, trace_id_of
from harness_worker.errors import TransientError
from harness_worker.testing.waiting import wait_until
from harness_worker.turn.finalizer import Finalizer
from harness_worker.turn.tracing import BATCH, MOST_WAITING, QUIET_S, Tracing
from tests.unit.engine_kit import TURN_ID, Action, Engine, SetClock, answers, raising


def taken() -> None:
    """What a collector does that takes a trace."""


@dataclass(slots=True)
class KeptTraces:
    """Implements ``ports.Traces``: keeps what it is sent, once it has done what a collector does."""

    does: Callable[[], object] = taken
    sent: list[Sequence[Trace]] = field(default_factory=list[Sequence[Trace]])
    is_closed: bool = False

    def send(self, traces: Sequence[Trace]) -> None:
        """See ``ports.Traces.send``."""
        self.does()
        self.sent.append(traces)

    def close(self) -> None:
        """See ``ports.Traces.close``."""
        self.is_closed = True

    @property
    def ids(self) -> list[int]:
        """The traces that were taken."""
        return [trace[0].trace_id for traces in self.sent for trace in traces]


class World:
    """One turn that is over, and what tells it."""

    def __init__(self, does: Callable[[], object] = taken) -> None:
        self.engine = Engine()
        self.engine.says(answers("so"))
        self.engine.work()
        self.traces = KeptTraces(does)
        self.clock = SetClock()
        self.counted: list[str] = []
        self.tracing = Tracing(
            store=cast("Any", self.engine.seen_store),
            traces=self.traces,
            agents=self.engine.coordinator.agents,
            clock=self.clock,
            on_lost=lambda: self.counted.append("lost"),
        )


def told_lost(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of traces that are lost."""
    return [record.getMessage() for record in caplog.records if "lost so far" in record.getMessage()]


def test_turns_that_wait_are_told_together_before_the_end() -> None:
    """In batches; whoever leaves waits for them, and tells no more afterwards."""
    world = World()
    for _ in range(BATCH + 1):
        world.tracing.tell(TURN_ID)
    world.tracing.start()
    world.tracing.finish(10.0)
    assert [len(traces) for traces in world.traces.sent] == [BATCH, 1]
    assert world.traces.is_closed
    assert set(world.traces.ids) == {trace_id_of(TURN_ID)}
    world.tracing.tell(TURN_ID)
    assert len(world.traces.sent) == 2


def test_end_that_comes_while_something_is_sent_is_not_forgotten() -> None:
    """What waited then is told, and the thread ends."""
    goes_on = threading.Event()
    world = World(lambda: goes_on.wait(30))
    for _ in range(BATCH + 1):
        world.tracing.tell(TURN_ID)
    world.tracing.start()
    world.tracing.finish(0.0)
    goes_on.set()
    wait_until(lambda: world.traces.is_closed, "the thread to end")
    assert [len(traces) for traces in world.traces.sent] == [BATCH, 1]


def test_turn_is_told_by_who_ends_it_once_its_end_is_committed() -> None:
    """Also one whose agent has no hook and no judge, and one whose agent nobody serves here."""
    engine = Engine()
    heard: list[tuple[str, bool]] = []
    finalizer = Finalizer(
        agents={},
        store=cast("Any", engine.seen_store),
        hooks=engine.hooks,
        dispatcher=cast("Any", engine.seen_sent),
        on_failure=engine.failed,
        trace=lambda turn_id: heard.append((turn_id, engine.turn.status.is_final)),
    )
    object.__setattr__(engine.coordinator, "finalizer", finalizer)
    engine.says(answers("so"))
    engine.work()
    engine.advance()
    assert heard == [(TURN_ID, True)]


def test_collector_that_hangs_holds_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    """Turns go on being told without waiting; beyond what is kept they are lost, counted, and logged once."""
    goes_on = threading.Event()
    world = World(lambda: goes_on.wait(30))
    world.tracing.start()
    for _ in range(MOST_WAITING + 2 * BATCH + 5):
        world.tracing.tell(TURN_ID)
    assert world.tracing.lost >= 5
    assert len(world.counted) == world.tracing.lost
    assert len(told_lost(caplog)) == 1
    world.tracing.finish(0.0)
    kept = MOST_WAITING + 2 * BATCH + 5 - world.tracing.lost
    told = re.search(r"traces of about (\d+) turns were not sent before this process ended", caplog.text)
    assert told is not None
    assert int(told[1]) in (kept - 1, kept)  # the thread may be between taking a turn and counting it
    goes_on.set()


@pytest.mark.parametrize("error", [TransientError("it says 500"), ValueError("a bug"), BaseException("a library's")])
def test_traces_that_are_not_taken_are_counted_and_logged_once_a_minute(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """The next ones are tried all the same."""
    problems: list[Action] = [raising(error)] * 3
    world = World(lambda: problems.pop()() if problems else None)
    world.tracing.start()
    for lost in (1, 2):
        world.tracing.tell(TURN_ID)
        wait_until(lambda lost=lost: world.tracing.lost == lost, "a trace to be lost")
    assert len(told_lost(caplog)) == 1
    world.clock.wait(QUIET_S)
    world.tracing.tell(TURN_ID)
    wait_until(lambda: len(world.counted) == 3, "a third to be lost")
    world.tracing.tell(TURN_ID)
    world.tracing.finish(10.0)
    assert world.traces.ids == [trace_id_of(TURN_ID)]
    first, second = told_lost(caplog)
    assert first.startswith("traces of 1 turns are lost so far")
    assert second.startswith("traces of 3 turns are lost so far")
    assert ("it says 500" in first) is isinstance(error, TransientError)


@pytest.mark.parametrize("error", [TransientError("no database"), ValueError("a bug"), BaseException("a library's")])
def test_turn_that_cannot_be_read_is_lost_alone(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """The others of its batch are told; one that is not there is nobody's."""
    caplog.set_level(logging.WARNING)
    world = World()
    world.engine.seen_store.before["load"].append(raising(error))
    for turn_id in (TURN_ID, "none", TURN_ID):
        world.tracing.tell(turn_id)
    world.tracing.start()
    world.tracing.finish(10.0)
    assert (world.traces.ids, world.tracing.lost) == ([trace_id_of(TURN_ID)], 1)
    assert len(told_lost(caplog)) == 1
