"""The protocol under every kind of fault: the real engine in a simulated fleet, one seed a schedule.

``HARNESS_TEST_SEEDS`` runs more schedules than the default, ``HARNESS_TEST_FIRST_SEED`` others. A failing schedule is
run again with ``World(seed, some(seed)).run()``.
"""

from __future__ import annotations

import logging
import os
from collections import Counter

import pytest

from tests.unit.simulation.faults import NONE, Fault, Faults, only, some
from tests.unit.simulation.waits_verdict import untold_waits
from tests.unit.simulation.world import World

SEEDS = int(os.environ.get("HARNESS_TEST_SEEDS", "400"))
FIRST = int(os.environ.get("HARNESS_TEST_FIRST_SEED", "0"))
CHUNKS = 4
DEATHS = only(Fault.KILL_PROCESS, Fault.KILL_HOST, Fault.LOSE_MESSAGE, Fault.DOUBLE_MESSAGE, Fault.DELAY_MESSAGE)
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


def test_session_keeps_every_promise_under_faults() -> None:
    """Three turns of one session: the same of each, and none begins before those before it have ended."""
    seeds = chunk(0)[: SEEDS // 10]
    broken = {seed: found for seed in seeds if (found := World(seed, some(seed), turns=3).run())}
    assert broken == {}


def test_turn_keeps_every_promise_when_people_are_asked() -> None:
    """Calls need approval, and those who are asked answer soon, late, twice, with other arguments, or never."""
    broken = {seed: found for seed in chunk(1) if (found := World(seed, some(seed), asks=0.3).run())}
    assert broken == {}


@pytest.mark.parametrize("number", range(2))
def test_turn_wastes_nothing_without_faults_when_people_are_asked(number: int) -> None:
    """Nobody sleeps on an answer, and nothing runs twice."""
    seeds = chunk(number)[:15]
    broken = {seed: found for seed in seeds if (found := World(seed, NONE, asks=0.3).run())}
    assert broken == {}


def test_turn_keeps_every_promise_when_calls_take_a_lock() -> None:
    """Under faults that lose no lock two never hold it at once; under all, who waits for it loses nothing else."""
    drawn = {seed: some(seed) if seed % 2 else DEATHS for seed in chunk(2)}
    broken = {seed: found for seed in chunk(2) if (found := World(seed, drawn[seed], asks=0.1, locks=0.6).run())}
    assert broken == {}


@pytest.mark.parametrize("turns", [1, 3])
def test_turn_keeps_every_promise_when_its_agent_thinks(turns: int) -> None:
    """It reflects and sums up: all that was promised holds, each is charged and told once, and prompts are sound."""
    seeds = chunk(3)[: SEEDS // (4 * turns)]
    broken = {seed: found for seed in seeds if (found := World(seed, some(seed), turns=turns, thinks=True).run())}
    assert broken == {}


def test_turn_wastes_nothing_without_faults_when_its_agent_thinks() -> None:
    """Nobody sleeps on a step that comes after a thought; all kinds of thoughts are met."""
    met: Counter[str] = Counter()
    for seed in chunk(0)[:15]:
        world = World(seed, NONE, turns=2, thinks=True)
        assert world.run() == [], seed
        asides = [e for e in world.store.events if e.type in ("reflection.completed", "compaction.completed")]
        met.update(f"{event.type} {'stub' if event.data['is_stub'] else 'said'}" for event in asides)
    assert set(met) == {f"{kind}.completed {how}" for kind in ("reflection", "compaction") for how in ("said", "stub")}


@pytest.mark.parametrize("asks", [0.0, 0.2])
def test_turn_keeps_every_promise_when_agents_ask_agents(asks: float) -> None:
    """The same of each turn that a call is, and they are one family: asked once, told truly, stopped together."""
    seeds = chunk(2)[: SEEDS // 16]
    broken = {seed: found for seed in seeds if (found := World(seed, some(seed), asks=asks, delegates=True).run())}
    assert broken == {}


def test_turn_wastes_nothing_without_faults_when_agents_ask_agents() -> None:
    """Nobody sleeps on a turn that was asked for, or that has ended; all that may become of one is met."""
    met: Counter[str] = Counter()
    for seed in chunk(1)[:20]:
        world = World(seed, NONE, turns=1 + 2 * (seed % 5 == 0), delegates=True)
        assert world.run() == [], seed
        for laws in world.all_laws.values():
            met += laws.met
    told = {"completed told as ToolExecutionResult", "incomplete told as ToolExecutionResult"}
    told |= {"cancelled told as ToolFailure", "cancelled told as doubt"}
    assert {f"child {each}" for each in told} <= set(met)


def test_waits_for_people_rise_to_whoever_asked() -> None:
    """Each that lasts is told by every turn above the one that waits; for one turn above and for two."""
    told: Counter[int] = Counter()
    for seed in chunk(3)[:6]:
        world = World(seed, NONE, asks=0.3, delegates=True)
        assert world.run() == [], seed
        assert [each for turn_id in world.store.turns for each in untold_waits(world.store, turn_id)] == [], seed
        events = [event for event in world.store.events if event.type == "subagent.requires_action"]
        pairs = {(event.turn_id, event.data["turn_id"]) for event in events}
        told.update(Counter(below for _, below in pairs).values())
    assert set(told) == {1, 2}


def test_simulation_meets_every_kind_of_answer() -> None:
    """Parked turns see approvals, denials, edits that fit and edits that do not, second answers, and none at all."""
    met: Counter[str] = Counter()
    for seed in range(20):
        world = World(seed, NONE, asks=0.3)
        world.run()
        met += world.laws.met + world.person.met
    heard = {f"heard {kind}" for kind in ("approve", "deny", "edit", "misfit")}
    assert heard | {"parked", "stale", "denied", "ran edited"} <= set(met)
    assert met["denied"] > met["heard deny"]


def _world(seed: int, faults: Faults, turns: int, *, thinks: bool, delegates: bool) -> World:
    return World(seed, faults, turns=turns, thinks=thinks, delegates=delegates)


@pytest.mark.acceptance
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("turns", [1, 3])
@pytest.mark.parametrize("faults", ["some", "standstill"])
def test_turn_keeps_every_promise_in_thousands_of_schedules(faults: str, turns: int) -> None:
    """What broke this protocol once was met in one schedule of a thousand; agents think, or ask others, or neither."""
    seeds = range(FIRST, FIRST + max(SEEDS, 10_000))
    drawn = {seed: some(seed) if faults == "some" else STANDSTILL for seed in seeds}
    kinds = {seed: {"thinks": seed % 3 == 0, "delegates": seed % 3 == 1} for seed in seeds}
    worlds = ((seed, _world(seed, drawn[seed], turns, **kinds[seed])) for seed in seeds)
    broken = {seed: found for seed, world in worlds if (found := world.run())}
    assert broken == {}


@pytest.mark.parametrize("number", range(2))
def test_turn_wastes_nothing_without_faults(number: int) -> None:
    """When nothing goes wrong no call runs twice, and nobody sleeps on what is to be done."""
    seeds = chunk(number)[:15]
    broken = {seed: found for seed in seeds if (found := World(seed, NONE, turns=1 + 2 * number).run())}
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
        *("write ToolArtifactReference", "denied not_run", "run again", "doubt without an effect"),
        *("denied duplicate", "denied blocked", "denied pre_hook", "denied validation"),
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
