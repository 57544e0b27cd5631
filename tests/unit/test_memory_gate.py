"""What only the gate in memory has: a clock that tests may set."""

from __future__ import annotations

import pytest

from harness_worker.adapters.memory.gate import MemoryGate
from harness_worker.core.reads import ReadState
from tests.contract.gate_kit import a_run, opened, running, settle, state
from tests.unit.engine_kit import SetClock

TTL_S = 6.0


@pytest.fixture
def clock() -> SetClock:
    """The gate's clock."""
    return SetClock(1_763_000_000.0)


@pytest.fixture
def gate(clock: SetClock) -> MemoryGate:
    """A gate by that clock."""
    return MemoryGate(lease_ttl_s=TTL_S, clock=clock.monotonic)


@pytest.mark.parametrize(("silence_s", "expected"), [(6.0, ReadState.LIVE), (6.001, ReadState.LOST)])
def test_a_run_is_lost_after_exactly_the_lease(
    gate: MemoryGate, clock: SetClock, silence_s: float, expected: ReadState
) -> None:
    """The last moment of a lease still belongs to it; a beat starts a new one."""
    turn_id = running(gate)
    clock.now_s += 5.0
    gate.beat([a_run(turn_id)])
    clock.now_s += silence_s
    assert state(gate, turn_id) is expected


@pytest.mark.parametrize(("after_s", "accepted"), [(2.0, True), (2.001, False)])
def test_a_cap_counts_from_admission(gate: MemoryGate, clock: SetClock, after_s: float, accepted: bool) -> None:
    """Queueing is not counted against a read's own cap, and the last moment belongs to it."""
    turn_id = opened(gate)
    clock.now_s += 30.0
    assert gate.admit(a_run(turn_id), 2_000).remaining_ms == 2_000
    clock.now_s += after_s
    assert gate.complete(a_run(turn_id), "x") is accepted


def test_times_are_those_of_admission_and_completion(gate: MemoryGate, clock: SetClock) -> None:
    """A read's times are those of the attempt whose outcome was taken, to the microsecond."""
    clock.now_s = 1_763_000_000.123456
    turn_id = running(gate)
    clock.now_s += 1.5
    gate.complete(a_run(turn_id), "x")
    clock.now_s += 1.5
    read = settle(gate, turn_id)
    assert (read.started_at, read.finished_at) == (1_763_000_000.123456, 1_763_000_001.623456)


def test_what_was_reported_as_expired_stays_closed_when_the_clock_is_set_back(
    gate: MemoryGate, clock: SetClock
) -> None:
    """A timeout that was reported is final."""
    turn_id = running(gate)
    clock.now_s += 61.0
    gate.beat([a_run(turn_id)])
    assert state(gate, turn_id) is ReadState.EXPIRED
    clock.now_s -= 61.0
    assert not gate.complete(a_run(turn_id), "x")
    assert state(gate, turn_id) is ReadState.CLOSED
