"""Threads beside a worker's tasks: heartbeats, and the reconciler, which looks for overdue turns."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from harness_worker.errors import TransientError
from harness_worker.ports import HeldTurn
from harness_worker.testing.waiting import wait_until
from harness_worker.threads.rounds import Rounds
from harness_worker.turn.heartbeat import CallHeartbeat, VisitHeartbeat
from harness_worker.turn.reconciler import Reconciler
from tests.unit.builders import NOW, TIMING, a_held_turn, a_turn, a_visit
from tests.unit.engine_kit import Interrupted, Sent, raising
from tests.unit.memory_store import MemoryTurnStore

SOON_S = 0.01
SILENT = TransientError("no answer")


@pytest.fixture
def now() -> list[float]:
    """The database's clock."""
    return [NOW]


@pytest.fixture
def store(now: list[float]) -> MemoryTurnStore:
    """A store that holds one held turn."""
    store = MemoryTurnStore(lambda: now[0])
    store.turns["turn"] = a_held_turn()
    return store


@pytest.fixture
def seen(store: MemoryTurnStore) -> Interrupted:
    """The store, which tests can interrupt."""
    return Interrupted(lambda: store)


@pytest.fixture
def heartbeat(seen: Interrupted) -> Generator[VisitHeartbeat]:
    """A heartbeat thread that was started."""
    beats = VisitHeartbeat(cast("Any", seen), every_s=SOON_S, ttl_s=TIMING.lease_ttl_s)
    beats.start()
    yield beats
    beats.stop()


def test_heartbeat_prolongs_what_is_held(
    heartbeat: VisitHeartbeat, seen: Interrupted, store: MemoryTurnStore, now: list[float]
) -> None:
    """Leases are prolonged within the context only."""
    with heartbeat.holding(a_visit(store.turns["turn"])):
        now[0] += 3.0
        wait_until(lambda: store.turns["turn"].lease_until == NOW + 3.0 + TIMING.lease_ttl_s, "a beat")
    let_rounds_pass(seen)  # one may be under way
    now[0] += 3.0
    let_rounds_pass(seen)
    assert store.turns["turn"].lease_until == NOW + 3.0 + TIMING.lease_ttl_s


def let_rounds_pass(seen: Interrupted) -> None:
    """Return once a round of heartbeats has begun and ended."""
    seen.before["beat_turns"] += [lambda: None] * 3
    wait_until(lambda: not seen.before["beat_turns"], "rounds to pass")


def test_heartbeat_survives_a_silent_store(
    heartbeat: VisitHeartbeat, seen: Interrupted, store: MemoryTurnStore, now: list[float]
) -> None:
    """After a failed heartbeat the next one is sent."""
    seen.before["beat_turns"] += [raising(SILENT), raising(SILENT)]
    now[0] += 1.0
    with heartbeat.holding(a_visit(store.turns["turn"])):
        wait_until(lambda: store.turns["turn"].lease_until == NOW + 1.0 + TIMING.lease_ttl_s, "a beat")
    assert seen.before["beat_turns"] == []


def test_heartbeat_tells_a_visit_to_stop(heartbeat: VisitHeartbeat) -> None:
    """Only visits of that turn are told."""
    other = replace(a_visit(a_held_turn(id="other")), owner="visit-2")
    with heartbeat.holding(a_visit(a_held_turn())) as mine, heartbeat.holding(other) as others:
        heartbeat.stop_turn("nonsense")
        assert not mine.is_set()
        heartbeat.stop_turn("turn")
        assert mine.is_set()
        assert not others.is_set()


def test_heartbeat_hears_a_cancel_whose_message_was_lost(
    heartbeat: VisitHeartbeat, seen: Interrupted, store: MemoryTurnStore
) -> None:
    """The row that it updates says that a cancel was requested."""
    with heartbeat.holding(a_visit(store.turns["turn"])) as told:
        assert not told.wait(5 * SOON_S)
        seen.before["beat_turns"].append(lambda: store.cancel("turn"))
        assert told.wait(30.0)


def test_heartbeat_tells_a_visit_that_lost_its_turn_to_stop(heartbeat: VisitHeartbeat, store: MemoryTurnStore) -> None:
    """Its work has no use any more; the visit that now holds the turn is not told."""
    lost = replace(a_visit(store.turns["turn"]), owner="visit-2")
    with heartbeat.holding(a_visit(store.turns["turn"])) as others, heartbeat.holding(lost) as told:
        assert told.wait(30.0)
        assert not others.is_set()


def test_heartbeat_that_never_started_stops() -> None:
    """That happens in a worker that fails while it starts."""
    VisitHeartbeat(MemoryTurnStore(lambda: NOW), every_s=1.0, ttl_s=1.0).stop()


def test_reconciler_wakes_what_is_overdue(store: MemoryTurnStore, now: list[float]) -> None:
    """A turn without a live lease is woken, and then not again for a while."""
    store.turns["turn"] = a_turn(wake_at=NOW)
    sent = Sent()
    reconciler = Reconciler(store, sent, every_s=SOON_S)
    assert [reconciler.look(), reconciler.look(), sent.advances] == [1, 0, 1]
    now[0] += 60.0
    assert reconciler.look() == 1


@dataclass
class Refusing(Sent):
    """Sends nothing while the broker refuses."""

    is_away: bool = True
    tried: list[str] = field(default_factory=list[str])

    def advance(self, turn_id: str, priority: str, *, begins: bool = False) -> bool:
        """See ``ports.Dispatcher.advance``."""
        self.tried.append(turn_id)
        return not self.is_away and super().advance(turn_id, priority, begins=begins)


def test_reconciler_that_cannot_send_leaves_turns_overdue(store: MemoryTurnStore) -> None:
    """After one failure the turns are given back, for others to find; then one is tried each round until it works."""
    store.turns = {each: a_turn(id=each, wake_at=NOW - late_s) for each, late_s in (("a", 30), ("b", 20), ("c", 10))}
    sent = Refusing()
    reconciler = Reconciler(store, sent, every_s=SOON_S)
    assert [reconciler.look(), reconciler.look(), sent.tried] == [0, 0, ["a", "a"]]
    assert [turn.wake_at for turn in store.turns.values()] == [NOW - 30, NOW - 20, NOW - 10]
    other = Sent()
    assert Reconciler(store, other, every_s=SOON_S).look() == 3
    store.turns = {each: a_turn(id=each, wake_at=NOW) for each in ("d", "e", "f")}
    sent.is_away = False
    assert [reconciler.look(), reconciler.look()] == [1, 2]


def test_reconciler_that_meets_an_error_of_the_system_leaves_turns_overdue(
    store: MemoryTurnStore, caplog: pytest.LogCaptureFixture
) -> None:
    """It is no bug, and other coordinators may have what this one lacks."""
    store.turns = {each: a_turn(id=each, wake_at=NOW - 30) for each in ("a", "b")}
    sent = Interrupted(Sent)
    sent.before["advance"].append(raising(MemoryError()))
    assert Reconciler(store, cast("Any", sent), every_s=SOON_S).look() == 0
    assert [turn.wake_at for turn in store.turns.values()] == [NOW - 30, NOW - 30]
    assert [(record.levelname, record.exc_info) for record in caplog.records] == [("WARNING", None)]


def test_reconciler_wakes_the_others_if_one_cannot_be_woken(
    store: MemoryTurnStore, caplog: pytest.LogCaptureFixture
) -> None:
    """An error about one turn is logged, and the next turns are woken."""
    store.turns = {each: a_turn(id=each, wake_at=NOW) for each in ("a", "b")}
    others = Sent()
    sent = Interrupted(lambda: others)
    sent.before["advance"].append(raising(AttributeError("no pool")))
    assert Reconciler(store, cast("Any", sent), every_s=SOON_S).look() == 2
    assert "wake-up of turn a not sent" in caplog.text
    assert others.advanced == [("b", "interactive")]


def test_reconciler_leaves_a_live_visit_alone(store: MemoryTurnStore) -> None:
    """Somebody already drives that turn."""
    assert Reconciler(store, Sent(), every_s=SOON_S).look() == 0


def test_reconciler_goes_on_after_an_error(store: MemoryTurnStore, seen: Interrupted) -> None:
    """It looks again, until it is stopped."""
    store.turns["turn"] = a_turn(wake_at=NOW)
    sent = Sent()
    seen.before["overdue"] += [raising(SILENT)]
    reconciler = Reconciler(cast("Any", seen), sent, every_s=SOON_S)
    reconciler.start()
    wait_until(lambda: sent.advances, "a wake-up")
    reconciler.stop()
    Reconciler(store, sent, every_s=SOON_S).stop()


def test_reconciler_that_cannot_look_leaves_the_rest_to_the_next_round(
    seen: Interrupted, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest needs the same journal, whose outage is told in one line."""
    done: list[str] = []
    seen.before["overdue"] += [raising(SILENT), lambda: done.append("look")]
    reconciler = Reconciler(cast("Any", seen), Sent(), every_s=SOON_S, besides=[lambda: done.append("rest")])
    reconciler.start()
    wait_until(lambda: "rest" in done, "a whole round")
    reconciler.stop()
    assert done[:2] == ["look", "rest"]
    assert [(record.levelname, record.exc_info) for record in caplog.records] == [("WARNING", None)]


def test_reconciler_does_what_else_is_to_be_done_after_each_look(
    store: MemoryTurnStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The parts run in order; an error of one ends neither the thread nor the rest of the round.

    Only a bug is told with its traceback.
    """
    done: list[str] = []

    def failing(name: str, error: Exception) -> Callable[[], None]:
        def fail() -> None:
            done.append(name)
            raise error

        return fail

    besides = (failing("silent", SILENT), failing("broken", ValueError("a bug")), lambda: done.append("last"))
    reconciler = Reconciler(store, Sent(), every_s=SOON_S, besides=besides)
    reconciler.start()
    wait_until(lambda: len(done) >= 6, "a second round")
    reconciler.stop()
    assert done[:6] == ["silent", "broken", "last"] * 2
    assert [record.exc_info is None for record in caplog.records][:2] == [True, False]


def test_calls_are_beaten_for_though_a_beat_fails(caplog: pytest.LogCaptureFixture) -> None:
    """Each failed heartbeat is logged, and the next follows."""
    failures: list[Exception] = [SILENT, OSError(5, "Input/output error"), ValueError("no such thing")]
    beaten = threading.Event()

    def beat() -> None:
        if failures:
            raise failures.pop(0)
        beaten.set()

    beats = CallHeartbeat("reads", beat, every_s=SOON_S)
    beats.start()
    wait_until(beaten.is_set, "a beat")
    beats.stop()
    assert [(record.levelname, record.message, bool(record.exc_info)) for record in caplog.records] == [
        ("WARNING", "heartbeat of reads not sent: TransientError('no answer')", False),
        ("WARNING", "heartbeat of reads not sent: OSError(5, 'Input/output error')", False),
        ("ERROR", "heartbeat of reads: a round failed", True),
    ]


@pytest.mark.parametrize("raised", [MemoryError(), SystemExit(3), KeyboardInterrupt()])
def test_rounds_go_on_whatever_one_raises_and_though_it_cannot_be_told(raised: BaseException) -> None:
    """Memory is too short even for the log line; the thread still makes its next round."""
    short = [raised, MemoryError()]
    made = threading.Event()

    class Counted(Rounds):
        def _round(self) -> None:
            if short:
                raise short[0]
            made.set()

    def unable(_: logging.LogRecord) -> bool:
        short.pop()
        raise MemoryError

    logger = logging.getLogger("harness_worker.threads.rounds")
    logger.addFilter(unable)
    rounds = Counted("counted", SOON_S)
    rounds.start()
    try:
        wait_until(made.is_set, "a round")
    finally:
        logger.removeFilter(unable)
        rounds.stop()


def test_rounds_that_are_stopped_have_ended() -> None:
    """Who stops them may close what they use."""
    begun, ended = threading.Event(), list[bool]()

    class Long(Rounds):
        def _round(self) -> None:
            begun.set()
            ended.append(self._stop.wait(30))

    rounds = Long("long", SOON_S)
    rounds.start()
    assert begun.wait(30)
    rounds.stop()
    assert ended == [True]


def test_heartbeats_of_all_visits_are_one_question(store: MemoryTurnStore) -> None:
    """Sent one after another, the last ones would lose their leases while the database is slow."""
    asked: list[int] = []

    class Counted:
        def beat_turns(self, visits: Sequence[HeldTurn], ttl_s: float) -> frozenset[HeldTurn]:
            asked.append(len(visits))
            return store.beat_turns(visits, ttl_s)

    beats = VisitHeartbeat(cast("Any", Counted()), every_s=SOON_S, ttl_s=TIMING.lease_ttl_s)
    store.turns["other"] = replace(a_held_turn(id="other"), owner="visit-2")
    mine, other = a_visit(store.turns["turn"]), replace(a_visit(store.turns["other"]), owner="visit-2")
    with beats.holding(mine), beats.holding(other):
        beats.start()
        wait_until(lambda: len(asked) > 1, "two rounds")
        beats.stop()
    assert set(asked) == {2}
    assert {turn.lease_until for turn in store.turns.values()} == {NOW + TIMING.lease_ttl_s}


@pytest.mark.parametrize("error", [SILENT, OSError(24, "Too many open files"), MemoryError()], ids=repr)
def test_heartbeat_of_calls_that_fails_is_sent_again_at_once(error: Exception) -> None:
    """It does not wait for the next interval, by which time the lease may have ended."""
    failing, sent = [raising(error), raising(error)], threading.Event()

    def beat() -> None:
        if failing:
            failing.pop()()
        sent.set()

    beats = CallHeartbeat("writes", beat, every_s=3_600.0)
    beats._round()  # pyright: ignore[reportPrivateUsage]
    assert sent.is_set()


def test_no_process_is_forked_in_the_midst_of_a_beat() -> None:
    """The child would inherit the locks that the heartbeat holds, and wait for them for ever."""
    inner = threading.Lock()
    begun = threading.Event()

    def beat() -> None:
        with inner:
            begun.set()
            assert not threading.Event().wait(5 * SOON_S)

    beats = CallHeartbeat("reads", beat, every_s=SOON_S)
    beats.start()
    for _ in range(5):
        begun.clear()
        wait_until(begun.is_set, "a beat")
        child = os.fork()
        if child == 0:
            os._exit(inner.locked())
        assert os.waitpid(child, 0)[1] == 0
    beats.stop()
