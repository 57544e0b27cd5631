"""The contract of ``Locks``, in memory and on Valkey."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count, repeat
from typing import TypeAlias

import pytest

from harness_worker.adapters.memory.locks import MemoryLocks
from harness_worker.adapters.redis.client import RedisClient
from harness_worker.adapters.redis.locks import RedisLocks
from harness_worker.ports import LockName, Locks, RunningCall
from harness_worker.testing.keys import keys_without_ttl
from harness_worker.testing.waiting import wait_until
from tests.contract.gate_kit import a_run, new_turn_id

LONG_TTL_S = 60.0
SHORT_TTL_S = 0.3
STEADY_TTL_S = 3.0
"""Longer than a slow machine takes from one heartbeat to the next question."""
KEEP_S = 10.0

LocksFactory: TypeAlias = Callable[[float], Locks]
numbers = count()


@pytest.fixture(params=["memory", "valkey"])
def make_locks(request: pytest.FixtureRequest) -> Iterator[LocksFactory]:
    """Makes locks with a given lease TTL in seconds, and checks that no key is left without a TTL."""
    if request.param == "memory":
        yield lambda ttl_s: MemoryLocks(lease_ttl_s=ttl_s)
        return
    client = RedisClient(request.getfixturevalue("valkey_url"))
    yield lambda ttl_s: RedisLocks(client, lease_ttl_s=ttl_s)
    assert keys_without_ttl(client, pattern="harness:{locks}*") == []
    client.disconnect()


@pytest.fixture
def locks(make_locks: LocksFactory) -> Locks:
    """Locks whose holders stay alive without heartbeats."""
    return make_locks(LONG_TTL_S)


def a_lock(tenant: str = "t") -> LockName:
    """The name of a lock that no other test uses."""
    return LockName(tenant=tenant, name=f"order:{new_turn_id()} ö{next(numbers)}")


def somebody() -> RunningCall:
    """A call in a new turn and a new process."""
    return a_run(new_turn_id(), runner=f"host/{next(numbers)}")


def test_take_lets_one_hold_it(locks: Locks) -> None:
    """Another call waits until the lock is released."""
    lock, first, second = a_lock(), somebody(), somebody()
    assert locks.take(lock, first, KEEP_S) is not None
    assert locks.take(lock, second, KEEP_S) is None
    assert locks.free(lock, first)
    assert locks.take(lock, second, KEEP_S) is not None


def test_take_by_one_of_many_at_once(locks: Locks) -> None:
    """Only one gets the lock, however many ask at the same time."""
    lock, callers = a_lock(), [somebody() for _ in range(8)]
    with ThreadPoolExecutor(len(callers)) as pool:
        fences = list(pool.map(locks.take, repeat(lock), callers, repeat(KEEP_S)))
    assert sum(fence is not None for fence in fences) == 1


def test_fences_rise_with_every_holder(locks: Locks) -> None:
    """Each new holder gets a higher number; the present holder gets the same number again."""
    lock = a_lock()
    fences: list[int] = []
    for run in (somebody(), somebody(), somebody()):
        fences += [locks.take(lock, run, KEEP_S) or 0, locks.take(lock, run, KEEP_S) or 0]
        locks.free(lock, run)
    assert fences[::2] == fences[1::2] == sorted(set(fences))
    assert fences[0] > 0


def test_fences_rise_though_redis_has_lost_the_lock(client: RedisClient) -> None:
    """What refuses a lower number than it has seen is safe from the holder of before the loss."""
    locks, lock = RedisLocks(client, lease_ttl_s=LONG_TTL_S), a_lock()
    before = locks.take(lock, somebody(), KEEP_S)
    client.command("DEL", *client.command("KEYS", "harness:{locks}*"))
    after = locks.take(lock, somebody(), KEEP_S)
    assert 0 < (before or 0) < (after or 0)


def test_locks_of_other_names_and_tenants_are_others(locks: Locks) -> None:
    """A tenant never waits for another tenant's call, whatever the names are."""
    name = a_lock().name
    free = [LockName(tenant=tenant, name=called) for tenant, called in (("a", f"b:{name}"), ("a:b", name), ("a", name))]
    assert all(locks.take(lock, somebody(), KEEP_S) for lock in free)


def test_free_by_another_changes_nothing(locks: Locks) -> None:
    """Only the holder can release a lock."""
    lock, holder, other = a_lock(), somebody(), somebody()
    locks.take(lock, holder, KEEP_S)
    assert not locks.free(lock, other)
    assert locks.take(lock, other, KEEP_S) is None
    assert not locks.free(a_lock(), other)


@pytest.mark.parametrize("other", ["turn", "call", "process"])
def test_holder_is_one_call_of_one_turn_in_one_process(locks: Locks, other: str) -> None:
    """What differs from it in only one of these neither has the lock, nor releases it, nor loses it."""
    lock, turn_id = a_lock(), new_turn_id()
    holder = a_run(turn_id, "0.0", runner="host/1")
    changed = {"turn": {"turn_id": new_turn_id()}, "call": {"call_id": "0.1"}, "process": {"runner": "host/2"}}
    another = replace(holder, **changed[other])
    assert locks.take(lock, holder, KEEP_S) is not None
    assert locks.take(lock, another, KEEP_S) is None
    assert not locks.free(lock, another)
    locks.lose(another)
    assert locks.take(lock, somebody(), KEEP_S) is None
    assert locks.free(lock, holder)


def test_free_lock_stays_free_though_its_holder_takes_another(locks: Locks) -> None:
    """The heartbeats of its holder are for the other lock."""
    lock, holder = a_lock(), somebody()
    locks.take(lock, holder, KEEP_S)
    locks.free(lock, holder)
    assert locks.take(a_lock(), holder, KEEP_S) is not None
    assert locks.take(lock, somebody(), KEEP_S) is not None


def test_holder_known_to_be_dead_holds_nothing(locks: Locks) -> None:
    """Its lock is free at once, under a higher number; a late release by the dead holder changes nothing."""
    lock, dead, heir = a_lock(), somebody(), somebody()
    first = locks.take(lock, dead, KEEP_S) or 0
    locks.lose(dead)
    assert (locks.take(lock, heir, KEEP_S) or 0) > first
    assert not locks.free(lock, dead)
    assert locks.free(lock, heir)


def test_holder_that_does_not_beat_loses_it(make_locks: LocksFactory) -> None:
    """After the lease another call may take the lock, and a late heartbeat does not bring it back."""
    locks = make_locks(SHORT_TTL_S)
    lock, silent, heir = a_lock(), somebody(), somebody()
    locks.take(lock, silent, KEEP_S)
    assert wait_until(lambda: locks.take(lock, heir, KEEP_S), "the lease to end")
    locks.beat([silent])
    assert not locks.free(lock, silent)


def test_beats_keep_it(make_locks: LocksFactory) -> None:
    """As long as its worker sends heartbeats, nobody else gets the lock."""
    locks = make_locks(STEADY_TTL_S)
    lock, silent_lock, holder, silent, other = a_lock(), a_lock(), somebody(), somebody(), somebody()
    locks.take(lock, holder, KEEP_S)
    locks.take(silent_lock, silent, KEEP_S)

    def silent_has_lost_its_own() -> bool:
        locks.beat([holder])
        assert locks.take(lock, other, KEEP_S) is None
        return locks.take(silent_lock, other, KEEP_S) is not None

    wait_until(silent_has_lost_its_own, "a lease to pass", interval_s=STEADY_TTL_S / 10)
    locks.beat([holder])
    assert locks.take(lock, other, KEEP_S) is None
    locks.beat([])


def test_attempts_of_one_process_are_one_holder(locks: Locks) -> None:
    """They share the lock, because a message may name a lower attempt than the one that runs."""
    lock, turn_id = a_lock(), new_turn_id()
    locks.take(lock, a_run(turn_id, attempt=2), KEEP_S)
    locks.lose(a_run(turn_id, attempt=1))
    assert not locks.free(lock, a_run(turn_id, attempt=2))
