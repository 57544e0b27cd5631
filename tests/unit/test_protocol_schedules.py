"""The protocol under every kind of fault: the real engine in a simulated fleet, one seed a schedule.

``HARNESS_TEST_SEEDS`` runs more schedules than the default, ``HARNESS_TEST_FIRST_SEED`` others. A failing schedule is
run again with ``World(seed, some(seed)).run()``.
"""

from __future__ import annotations

import logging
import os
from collections import Counter

import pytest

from tests.unit.simulation.faults import NONE, Fault, only, some
from tests.unit.simulation.world import World

SEEDS = int(os.environ.get("HARNESS_TEST_SEEDS", "400"))
FIRST = int(os.environ.get("HARNESS_TEST_FIRST_SEED", "0"))
CHUNKS = 4
STANDSTILL = only(Fault.FLUSH, Fault.STOP_HOST, Fault.STORE_ERROR, strength=6)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Without the engine's warnings: here things go wrong on purpose."""
    caplog.set_level(logging.CRITICAL, logger="harness_worker.turn")


def chunk(number: int) -> range:
    """A part of the seeds, so that test processes may share them."""
    return range(FIRST + number * SEEDS // CHUNKS, FIRST + (number + 1) * SEEDS // CHUNKS)


@pytest.mark.parametrize("number", range(CHUNKS))
def test_turn_keeps_every_promise_under_faults(number: int) -> None:
    """Kill, stop and cut off anything at any instant: the turn ends, each call has one true result."""
    broken = {seed: found for seed in chunk(number) if (found := World(seed, some(seed)).run())}
    assert broken == {}


def test_turn_keeps_every_promise_when_workers_stand_still() -> None:
    """The schedules that broke most: whole workers stop for long, Redis is flushed again and again."""
    broken = {seed: found for seed in chunk(0) if (found := World(seed, STANDSTILL).run())}
    assert broken == {}


@pytest.mark.acceptance
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("faults", ["some", "standstill"])
def test_turn_keeps_every_promise_in_thousands_of_schedules(faults: str) -> None:
    """What broke this protocol once was met in one schedule of a thousand."""
    seeds = range(FIRST, FIRST + max(SEEDS, 10_000))
    drawn = {seed: some(seed) if faults == "some" else STANDSTILL for seed in seeds}
    broken = {seed: found for seed in seeds if (found := World(seed, drawn[seed]).run())}
    assert broken == {}


@pytest.mark.parametrize("number", range(2))
def test_turn_wastes_nothing_without_faults(number: int) -> None:
    """When nothing goes wrong no call runs twice, and nobody sleeps on what is to be done."""
    seeds = chunk(number)[:15]
    broken = {seed: found for seed in seeds if (found := World(seed, NONE).run())}
    assert broken == {}


def test_simulation_meets_every_situation() -> None:
    """The oracle is worth something only if the schedules lead to all that can become of a call."""
    met: Counter[str] = Counter()
    for seed in range(70):
        world = World(seed, only(Fault.KILL_PROCESS, Fault.FLUSH, Fault.STOP_PROCESS, strength=0.7))
        world.run()
        met += world.laws.met
    expected = {
        *("read ToolExecutionResult", "read ToolTimeout", "read ToolFailure", "read worker_lost"),
        *("read ToolArtifactReference", "write ToolExecutionResult", "write ToolFailure", "write doubt"),
        *("write ToolArtifactReference", "denied", "denied not_run", "run again", "doubt without an effect"),
    }
    assert expected <= set(met)


def test_simulation_is_decided_by_its_seed() -> None:
    """The same seed gives the same schedule, so that a failure can be looked at."""
    worlds = [World(7, some(7)) for _ in range(2)]
    for world in worlds:
        world.run()
    assert worlds[0].store.events == worlds[1].store.events
    assert worlds[0].kernel.now == worlds[1].kernel.now


def test_faults_are_drawn_in_every_kind() -> None:
    """Each kind of fault strikes in some schedule of the first seeds."""
    assert {kind for seed in range(60) for kind in some(seed).strength} == set(Fault)
