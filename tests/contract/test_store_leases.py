"""The contract of ``TurnStore`` on leases: heartbeats, losses and overdue turns, on SQLite and on Postgres."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import select, update

from harness_worker.adapters.sql.store import SqlTurnStore
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.records import CallStatus
from harness_worker.ports import HeldTurn, OverdueTurn, RunningCall
from harness_worker.schema import tool_calls, turns
from harness_worker.wire import FINAL_STATUSES, TurnStatus
from tests.contract.store_world import World, running

AT_ONCE_S = 5.0
"""Far less time than a statement may wait for a lock, in seconds."""


def run_of(turn_id: str, position: int = 0, attempt: int = 1, runner: str = "host/7") -> RunningCall:
    """The run of the call that ``running`` makes."""
    return RunningCall(turn_id=turn_id, call_id=f"0.{position}", attempt=attempt, runner=runner)


def visited(world: World, *, longest_s: float = 900.0) -> str:
    """A turn that ``w1`` holds with fence 3 and an expired lease."""
    turn_id = world.queued()
    now = world.now()
    world.change(
        turn_id, status=TurnStatus.RUNNING, owner="w1", fence=3, lease_until=now - 1, visit_deadline=now + longest_s
    )
    return turn_id


def lease_of(world: World, turn_id: str) -> float:
    """A turn's lease, in seconds from now."""
    lease = world.turn(turn_id).lease_until
    assert lease is not None
    return lease - world.now()


def call_leases(world: World, turn_id: str) -> list[float]:
    """The leases of a turn's calls, in seconds from now, rounded."""
    now = world.now()
    return [round((call.lease_until or 0.0) - now) for call in world.calls(turn_id)]


def goes_on(world: World, turn_id: str, owner: str, fence: int) -> bool:
    """Send a heartbeat for a visit, and return whether it goes on."""
    visit = HeldTurn(turn_id, owner, fence)
    given_up = world.store.beat_turns([visit], 60.0)
    assert given_up <= {visit}
    return not given_up


def test_beat_turns_prolongs_those_that_hold_and_names_the_others(world: World):
    """Each visit is judged by itself."""
    held, lost = visited(world), visited(world)
    gone = [HeldTurn(lost, "w2", 3), HeldTurn("nonsense", "w1", 3)]
    assert world.store.beat_turns([*gone, HeldTurn(held, "w1", 3)], 60.0) == {*gone}
    assert lease_of(world, held) == pytest.approx(60, abs=5)
    assert lease_of(world, lost) < 0
    assert world.store.beat_turns([], 60.0) == frozenset()


def test_beat_turns_tells_of_a_cancel(world: World):
    """The holder of a turn that is to be cancelled is told to give up."""
    turn_id = visited(world)
    assert goes_on(world, turn_id, "w1", 3)
    world.change(turn_id, cancel_requested=True)
    assert not goes_on(world, turn_id, "w1", 3)


def test_beat_turns_tells_who_lost_the_turn(world: World):
    """Another visit took the turn, it was released, it has ended, or it was removed; no lease is prolonged then."""
    turn_id = visited(world)
    for lost in ((turn_id, "w2", 3), (turn_id, "w1", 2), (turn_id, "w1", 4), ("nonsense", "w1", 3)):
        assert not goes_on(world, *lost)
    for change in ({"owner": None}, *({"status": status} for status in FINAL_STATUSES)):
        world.change(turn_id, **change)
        before = world.turn(turn_id)
        assert not goes_on(world, turn_id, "w1", 3)
        assert world.turn(turn_id) == before
        world.change(turn_id, owner="w1", status=TurnStatus.RUNNING)
    assert lease_of(world, turn_id) < 0
    assert goes_on(world, turn_id, "w1", 3)


def test_beat_turns_never_passes_the_visit_deadline(world: World):
    """A hung visit is not kept alive by the heartbeat of its worker."""
    turn_id = visited(world, longest_s=2.0)
    goes_on(world, turn_id, "w1", 3)
    turn = world.turn(turn_id)
    assert turn.lease_until == turn.visit_deadline


def test_beat_calls_prolongs_running_writes_only(world: World):
    """Of many runs of several turns, only those that run in that process count, even if the attempt has risen."""
    a, b = world.queued(), world.queued()
    world.put(running(a, 0), running(a, 1, attempt=2), running(a, 2, status=CallStatus.ENDED), running(a, 3))
    world.put(running(b, 0, runner="host/8"), running(b, 1))
    runs = [run_of(a, 0), run_of(a, 1), run_of(a, 2), run_of(b, 0), run_of(b, 1), run_of("gone", 0)]
    world.store.beat_calls(runs, 3_000.0)
    assert [lease > 2_000 for lease in call_leases(world, a)] == [True, True, False, False]
    assert [lease > 2_000 for lease in call_leases(world, b)] == [False, True]
    world.store.beat_calls([], 3_000.0)


def test_beat_calls_leaves_locked_rows_and_returns_at_once(postgres_world: World):
    """A row that another transaction holds is skipped, the others are prolonged, and nothing waits."""
    world = postgres_world
    turn_id = world.queued()
    world.put(running(turn_id, 0), running(turn_id, 1))
    held = select(tool_calls.c.position).where(tool_calls.c.position == 0).with_for_update(key_share=True)
    with world.locked(held):
        started = time.monotonic()
        world.store.beat_calls([run_of(turn_id, 0), run_of(turn_id, 1)], 3_000.0)
        took_s = time.monotonic() - started
        assert [lease > 2_000 for lease in call_leases(world, turn_id)] == [False, True]
    assert took_s < AT_ONCE_S
    world.store.beat_calls([run_of(turn_id, 0)], 3_000.0)
    assert [lease > 2_000 for lease in call_leases(world, turn_id)] == [True, True]


def test_call_that_is_being_decided_on_gets_no_beat(postgres_world: World):
    """Else a process whose call is declared lost would take it for its own, while the call is sent again."""
    world = postgres_world
    turn_id = world.queued()
    world.put(running(turn_id))

    def lost_while_it_beats(snapshot: Snapshot) -> Decision[None]:
        world.store.beat_calls([run_of(turn_id)], 3_000.0)
        return Decision(result=None, calls=tuple(replace(call, attempt=2) for call in snapshot.calls))

    SqlTurnStore(world.engine, world.sink, unlocked_tries=0).transact(turn_id, lost_while_it_beats)
    (call,) = world.calls(turn_id)
    assert (call.attempt, call.lease_until) == (2, 1.0)


def test_beat_turns_leaves_a_locked_turn_and_returns_at_once(postgres_world: World):
    """A locked turn is not lost: the next heartbeat prolongs its lease."""
    world = postgres_world
    turn_id = visited(world)
    held = select(turns.c.id).where(turns.c.id == turn_id).with_for_update(key_share=True)
    with world.locked(held):
        started = time.monotonic()
        assert goes_on(world, turn_id, "w1", 3)
        assert time.monotonic() - started < AT_ONCE_S
    assert lease_of(world, turn_id) < 0


def test_lose_call_ends_the_lease_of_that_run(world: World):
    """The lease ends now; for an earlier attempt or another process of the call, nothing changes."""
    turn_id = world.queued()
    future = world.now() + 900
    world.put(*(running(turn_id, position, lease_until=future) for position in range(5)))
    world.put(running(turn_id, 3, status=CallStatus.ENDED, lease_until=future))
    world.put(running(turn_id, 4, attempt=2, lease_until=future))
    assert world.store.lose_call(run_of(turn_id, 0)) == "interactive"
    world.store.lose_call(run_of(turn_id, 1, attempt=2))
    world.store.lose_call(run_of(turn_id, 2, runner="host/8"))
    world.store.lose_call(run_of(turn_id, 3))
    world.store.lose_call(run_of(turn_id, 4))  # its process raised the attempt that the message named
    assert [lease <= 1 for lease in call_leases(world, turn_id)] == [True, False, False, False, True]


def test_signs_of_life_and_death_are_of_calls_of_one_turn(world: World):
    """Calls of other turns have the same steps and positions; each loss tells the priority of its own turn."""
    one, other = world.queued(), world.queued(priority="batch")
    for turn_id in (one, other):
        world.put(running(turn_id, lease_until=world.now() + 900))
    world.store.beat_calls([run_of(one)], 3_000.0)
    assert call_leases(world, one)[0] > 2_000
    assert 0 < call_leases(world, other)[0] <= 900
    assert world.store.lose_call(run_of(other)) == "batch"
    assert call_leases(world, one)[0] > 2_000
    assert call_leases(world, other)[0] <= 1
    assert world.store.lose_call(run_of(one)) == "interactive"


def test_lose_call_of_no_turn_is_for_nobody(world: World):
    """If the turn was removed meanwhile, there is nobody to wake."""
    assert world.store.lose_call(run_of("nobody", 0)) is None


def test_late_beat_does_not_bring_back_a_lost_call(world: World):
    """Its process is known to be dead; once the call is claimed again, heartbeats count again."""
    turn_id = world.queued()
    world.put(running(turn_id, 0), running(turn_id, 1))
    world.store.lose_call(run_of(turn_id, 0))
    world.store.beat_calls([run_of(turn_id, 0), run_of(turn_id, 1)], 3_000.0)
    assert [lease > 2_000 for lease in call_leases(world, turn_id)] == [False, True]


def test_overdue_gives_the_oldest_first_and_pushes_them_on(world: World):
    """Whoever took them has the time of the backoff before another is asked to look."""
    now = world.now()
    ids = [world.queued(priority=priority) for priority in ("interactive", "batch", "interactive")]
    for turn_id, late_s in zip(ids, (10, 30, 20), strict=True):
        world.change(turn_id, wake_at=now - late_s)

    def taken(most: int) -> list[tuple[str, str, bool]]:
        return [turn[:3] for turn in world.store.overdue(most, 60.0)]

    assert taken(2) == [(ids[1], "batch", True), (ids[2], "interactive", True)]
    assert taken(9) == [(ids[0], "interactive", True)]
    assert taken(9) == []
    assert (world.turn(ids[1]).wake_at or 0) == pytest.approx(now + 60, abs=5)


def test_given_back_turn_is_overdue_since_it_was(world: World):
    """If no wake-up could be sent, other coordinators find the turn at once, and it is overdue since the same time."""
    now = world.now()
    ids = [world.queued(priority=priority) for priority in ("batch", "interactive")]
    for turn_id, late_s in zip(ids, (900, 20), strict=True):
        world.change(turn_id, wake_at=now - late_s)
    taken = world.store.overdue(9, 60.0)
    world.store.give_back(taken)
    assert [world.turn(turn_id).wake_at for turn_id in ids] == [now - 900, now - 20]
    assert world.store.overdue(9, 60.0) == taken
    world.store.give_back([])


def test_turn_that_somebody_looked_at_is_not_given_back(world: World):
    """A turn that is held, has ended or is overdue again keeps what was decided since."""
    now = world.now()
    held, over, anew = (world.queued() for _ in range(3))
    for turn_id in (held, over, anew):
        world.change(turn_id, wake_at=now - 30)
    taken = world.store.overdue(9, 60.0)
    assert len(taken) == 3
    world.change(held, owner="w", lease_until=now + 900, wake_at=now + 900)
    world.change(over, status=TurnStatus.COMPLETED, wake_at=None)
    world.change(anew, wake_at=now - 1)
    world.store.give_back(taken)
    assert [world.turn(turn_id).wake_at for turn_id in (held, over, anew)] == [now + 900, None, now - 1]


def test_overdue_pushes_a_queued_turn_on_by_its_age(world: World):
    """It is put off by as long as it has waited, so that a long queue is not filled with copies of its messages."""
    for priority, status, age_s, pause_s in (
        ("batch", TurnStatus.QUEUED, 2, 5),
        ("batch", TurnStatus.QUEUED, 90, 90),
        ("batch", TurnStatus.QUEUED, 9_000, 600),
        ("batch", TurnStatus.RUNNING, 90, 5),
        ("interactive", TurnStatus.QUEUED, 2, 5),
        ("interactive", TurnStatus.QUEUED, 40, 40),
        ("interactive", TurnStatus.QUEUED, 9_000, 60),
        ("interactive", TurnStatus.RUNNING, 90, 5),
    ):
        turn_id, now = world.queued(priority=priority), world.now()
        world.change(turn_id, status=status, wake_at=now - 1)
        with world.engine.begin() as connection:
            connection.execute(update(turns).where(turns.c.id == turn_id).values(created_at=now - age_s))
        (taken,) = world.store.overdue(9, 5.0)
        took_s = world.now() - now  # by which the turn grew older
        assert taken[:3] == (turn_id, priority, status is TurnStatus.QUEUED)
        assert -0.1 <= (world.turn(turn_id).wake_at or 0) - (now + pause_s) <= 2 * took_s + 0.1


def test_overdue_leaves_turns_that_need_no_look(world: World):
    """Turns that are finished, held under a live lease, not due yet or never due are not returned."""
    now = world.now()
    held, later, never, over, lapsed, released = (world.queued() for _ in range(6))
    world.change(held, owner="w", lease_until=now + 900, wake_at=now - 1)
    world.change(later, wake_at=now + 900)
    world.change(never, wake_at=None)
    world.change(over, status=TurnStatus.COMPLETED, wake_at=now - 1)
    world.change(lapsed, owner="w", lease_until=now - 1, wake_at=now - 2)
    world.change(released, owner=None, lease_until=now + 900, wake_at=now - 1)
    assert [turn_id for turn_id, *_ in world.store.overdue(9, 60.0)] == [lapsed, released]


def test_overdue_never_gives_a_turn_to_two_callers(world: World):
    """Four callers share forty turns, and each turn is returned once."""
    ids = [world.queued() for _ in range(40)]

    def take(_: int) -> list[OverdueTurn]:
        return [taken for _ in range(4) for taken in world.store.overdue(5, 600.0)]

    with ThreadPoolExecutor(4) as pool:
        taken = [turn_id for part in pool.map(take, range(4)) for turn_id, *_ in part]
    taken += [turn_id for turn_id, *_ in world.store.overdue(100, 600.0)]
    assert sorted(taken) == sorted(ids)


def test_overdue_skips_locked_turns(postgres_world: World):
    """A turn that is being worked on needs no look, and the others do not wait for it."""
    world = postgres_world
    a, b = world.queued(), world.queued()
    with world.locked(select(turns.c.id).where(turns.c.id == a).with_for_update(key_share=True)):
        started = time.monotonic()
        assert [turn_id for turn_id, *_ in world.store.overdue(9, 60.0)] == [b]
        assert time.monotonic() - started < AT_ONCE_S
    assert [turn_id for turn_id, *_ in world.store.overdue(9, 60.0)] == [a]
