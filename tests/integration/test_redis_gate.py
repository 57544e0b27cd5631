"""What only the gate and the locks on Redis have: keys that expire or are lost, and a clock that may be set back."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from harness_worker.adapters.redis.client import RedisClient
from harness_worker.adapters.redis.gate import RedisGate
from harness_worker.adapters.redis.locks import RedisLocks
from harness_worker.core.reads import ReadState
from harness_worker.errors import TransientError
from harness_worker.ports import Admission, LockName
from tests.contract.gate_kit import READ, a_pass, a_run, admit, new_turn_id, opened, running, settle, state

HOUR_MS = 3_600_000
SLACK_MS = 60_000


@pytest.fixture
def gate(client: RedisClient) -> RedisGate:
    """A gate on that client."""
    return RedisGate(client, lease_ttl_s=60.0)


def lifetime_ms(client: RedisClient, turn_id: str) -> int:
    """How long the turn's only key will stay, in milliseconds."""
    [key] = client.command("KEYS", f"harness:{{{turn_id}}}:*")
    lifetime: int = client.command("PTTL", key)
    return lifetime


@pytest.mark.parametrize(("longest_ms", "expected_ms"), [(1_000, HOUR_MS), (5 * HOUR_MS, 5 * HOUR_MS + 600_000)])
def test_gate_stays_ten_minutes_past_the_last_deadline(
    client: RedisClient, gate: RedisGate, longest_ms: int, expected_ms: int
) -> None:
    """Whatever is done to it later, a gate outlives each deadline it was given, and stays for an hour at least."""
    turn_id = opened(gate, a_pass("0.0", remaining_ms=longest_ms), a_pass("0.1", remaining_ms=1_000))
    gate.open(turn_id, 1, [a_pass("0.2", remaining_ms=10)])
    gate.close(turn_id, 1)
    assert expected_ms - SLACK_MS < lifetime_ms(client, turn_id) <= expected_ms


def test_gate_of_a_turn_that_is_over_holds_no_text(client: RedisClient, gate: RedisGate) -> None:
    """It stays for an hour without the calls' texts, which the journal has; a gate that is only closed keeps them."""
    turn_id = opened(gate, a_pass("0.0"), a_pass("0.1"))
    admit(gate, turn_id, "0.0")
    assert gate.complete(a_run(turn_id, "0.0"), "x" * 10_000)
    key = f"harness:{{{turn_id}}}:gate"
    gate.close(turn_id, 1)
    assert {"c:0.0", "t:0.0", "t:0.1"} < set(client.command("HKEYS", key))
    gate.close(turn_id, 0, is_over=True)
    assert "c:0.0" in client.command("HKEYS", key), "a lower fence forgot what a higher one needs"
    gate.close(turn_id, 1, is_over=True)
    assert set(client.command("HKEYS", key)) == {"fence", "open", "until", "whole", "e:0.0", "e:0.1"}


def test_gate_closes_what_it_reports_as_expired(client: RedisClient, gate: RedisGate) -> None:
    """A read reported as timed out stays closed even if the server's clock is set back."""
    turn_id = opened(gate, a_pass(remaining_ms=-1))
    assert state(gate, turn_id) is ReadState.EXPIRED
    entry = json.loads(client.command("HGET", f"harness:{{{turn_id}}}:gate", f"e:{READ}"))
    assert entry["closed"] is True


def test_read_that_an_earlier_version_opened_goes_on(client: RedisClient, gate: RedisGate) -> None:
    """While a fleet is upgraded, a read that was opened without the model's id for it is not taken for another."""
    turn_id = running(gate)
    key = f"harness:{{{turn_id}}}:gate"
    entry = json.loads(client.command("HGET", key, f"e:{READ}"))
    del entry["use"]
    client.command("HSET", key, f"e:{READ}", json.dumps(entry))
    assert state(gate, turn_id) is ReadState.LIVE
    assert gate.open(turn_id, 1, [a_pass()])
    assert gate.complete(a_run(turn_id), "x")
    assert settle(gate, turn_id).completion == "x"


@pytest.mark.parametrize("gate_operation", ["settle", "admit", "complete", "raise_fence", "lose", "close"])
def test_gate_that_somebody_replaced_counts_as_lost(client: RedisClient, gate: RedisGate, gate_operation: str) -> None:
    """Another client may write something that is no hash to its key; whichever operation is next, reads run again."""
    turn_id = running(gate)
    client.command("SET", f"harness:{{{turn_id}}}:gate", "somebody else's")
    operations: dict[str, Callable[[], object]] = {
        "settle": lambda: state(gate, turn_id),
        "admit": lambda: admit(gate, turn_id),
        "complete": lambda: gate.complete(a_run(turn_id), "x"),
        "raise_fence": lambda: gate.raise_fence(turn_id, 2),
        "lose": lambda: gate.lose(a_run(turn_id)),
        "close": lambda: gate.close(turn_id, 1),
    }
    operations[gate_operation]()
    assert not gate.complete(a_run(turn_id), "x")
    assert admit(gate, turn_id) is Admission.CLOSED
    assert gate.raise_fence(turn_id, 3)
    assert state(gate, turn_id, fence=3) is ReadState.GONE


def test_gate_and_lock_that_redis_refuses_to_read_are_not_lost(redis_url: str) -> None:
    """Such as for a user who may not read hashes; they stay as they are, and the error is the caller's."""
    owner = RedisClient(redis_url)
    turn_id, lock = running(RedisGate(owner, lease_ttl_s=60.0)), LockName(tenant="t", name=new_turn_id())
    fence = RedisLocks(owner, lease_ttl_s=60.0).take(lock, a_run(turn_id), 10.0)
    owner.command("ACL", "SETUSER", "reader", "on", ">pw", "~*", "+@all", "-hmget", "-hget")
    reader = RedisClient(redis_url.replace("redis://", "redis://reader:pw@"))
    with pytest.raises(TransientError):
        state(RedisGate(reader, lease_ttl_s=60.0), turn_id)
    with pytest.raises(TransientError):
        RedisLocks(reader, lease_ttl_s=60.0).take(lock, a_run(new_turn_id()), 10.0)
    assert state(RedisGate(owner, lease_ttl_s=60.0), turn_id) is ReadState.LIVE
    assert RedisLocks(owner, lease_ttl_s=60.0).take(lock, a_run(turn_id), 10.0) == fence
    for client in (reader, owner):
        client.disconnect()


@pytest.mark.parametrize("what", ["lock is lost", "lock is replaced", "clock is set back"])
def test_fence_of_a_lock_is_above_all_earlier_ones(client: RedisClient, what: str) -> None:
    """Even if Redis has lost the lock since, or somebody replaced it, or its clock was ahead when it was taken last."""
    locks, lock = RedisLocks(client, lease_ttl_s=60.0), LockName(tenant="t", name=new_turn_id())
    first, second = a_run(new_turn_id()), a_run(new_turn_id())
    fence = locks.take(lock, first, 10.0)
    assert fence
    key = f"harness:{{locks}}:t:{lock.name}"
    if what == "lock is lost":
        client.command("DEL", key)
    elif what == "lock is replaced":
        client.command("SET", key, "somebody else's")
    else:
        fence += HOUR_MS * 1_000
        client.command("HSET", key, "fence", fence)
        assert locks.free(lock, first)
    assert (locks.take(lock, second, 10.0) or 0) > fence
