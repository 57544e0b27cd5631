"""What a commit leaves, and for how long it is relied on."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from harness_worker.adapters.sql.recent import FRESH_S, KEPT, Recent, Seen
from harness_worker.core.afterwards import after, needs_beats
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.records import CallStatus, EventDraft, Message
from tests.unit.builders import a_call, a_turn

EVENT = EventDraft(type="step.started", data={"step": 0})
WORDS = Message(position=0, role="user", content="hello")


def test_after_counts_events_and_messages():
    """Those of the decision, on top of what was there, with or without another change of the turn."""
    before = Snapshot(now=1.0, turn=a_turn(last_seq=3, message_count=1), calls=())
    left = after(before, Decision(result=None, events=(EVENT, EVENT), messages=(WORDS,)))
    assert (left.turn.last_seq, left.turn.message_count) == (5, 2)
    changed = after(before, Decision(result=None, turn=replace(before.turn, wakes=9), events=(EVENT,)))
    assert (changed.turn.last_seq, changed.turn.wakes, changed.now) == (4, 9, 1.0)


def test_after_shows_the_calls_that_a_snapshot_shows():
    """Not collected yet, or of the latest step; in order."""
    old, open_, new = a_call(0, step=0, collected=True), a_call(1, step=1), a_call(0, step=2)
    before = Snapshot(now=1.0, turn=a_turn(step=2), calls=(open_,))
    left = after(before, Decision(result=None, turn=replace(before.turn, step=3), calls=(new, old)))
    assert [call.call_id for call in left.calls] == ["1.1", "2.0"]
    closed = after(left, Decision(result=None, calls=(replace(open_, collected=True), replace(new, collected=True))))
    assert [call.call_id for call in closed.calls] == ["2.0"]


@pytest.mark.parametrize(("status", "lease_until", "needs"), [
    (CallStatus.RUNNING, 9.0, True),
    (CallStatus.RUNNING, 10.0, True),
    (CallStatus.RUNNING, 10.1, False),
    (CallStatus.RUNNING, None, False),
    (CallStatus.ENDED, 9.0, False),
])  # fmt: skip
def test_needs_beats_where_a_running_call_seems_lost(status: CallStatus, lease_until: float | None, needs: bool):
    """Only a lease of a running call can have been prolonged."""
    call = a_call(0, status=status, lease_until=lease_until)
    assert needs_beats(Snapshot(now=10.0, turn=a_turn(), calls=(call,))) is needs


def seen(turn_id: str = "turn", at: float = 100.0, asked: float = 99.9) -> Seen:
    """A turn as a commit left it."""
    snapshot = Snapshot(now=1_000.0, turn=a_turn(id=turn_id), calls=())
    return Seen(snapshot=snapshot, version="7", at=at, asked=asked)


def test_recent_counts_the_time_on_and_tells_once():
    """The database's time has gone on by as much as the process's own."""
    recent = Recent(lambda: 100.5)
    recent.keep(seen())
    taken = recent.take("turn")
    assert taken is not None
    assert (taken.snapshot.now, taken.at, taken.asked, taken.version) == (1_000.5, 100.5, 99.9, "7")
    assert recent.take("turn") is None


def test_recent_goes_by_when_the_database_was_asked():
    """A process that stood still while the database answered does not know how late it is."""
    recent = Recent(lambda: 100.0 + FRESH_S)
    recent.keep(seen(at=100.0 + FRESH_S))
    assert recent.take("turn") is None


def test_recent_forgets_the_oldest():
    """It never holds more than so many turns."""
    recent = Recent(lambda: 100.0)
    for number in range(KEPT + 1):
        recent.keep(seen(str(number)))
    assert recent.take("0") is None
    assert recent.take("1") is not None
    assert recent.take(str(KEPT)) is not None


def test_recent_never_raises_while_others_use_it():
    """It is written to after a commit is made: what it raised then would be taken for a failure of that."""
    recent, every = Recent(lambda: 100.0), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            works = [threads.submit(_keep_and_take, recent, number) for number in range(4)]
        assert [work.exception() for work in works] == [None] * 4
    finally:
        sys.setswitchinterval(every)


def _keep_and_take(recent: Recent, number: int) -> None:
    turns = [seen(f"{number}-{each}") for each in range(KEPT)]
    for _ in range(100):
        for each in turns:
            recent.keep(each)
        recent.take(turns[-1].snapshot.turn.id)
