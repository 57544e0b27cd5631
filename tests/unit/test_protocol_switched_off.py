"""Each rule of the protocol is switched off, which the simulation must notice: so an earlier version failed."""

# The rules are switched off where they stand:
# pyright: reportPrivateUsage=false

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from harness_worker.adapters.memory.gate import MemoryGate
from harness_worker.adapters.memory.gate_state import Entry, TurnGate
from harness_worker.core import collect, collect_writes, ending, opening, progress, visits, writes
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.doubt import not_run, timed_out
from harness_worker.core.lifecycle import end_call
from harness_worker.core.outcomes import ToolOutcome
from harness_worker.core.reads import SettledRead
from harness_worker.core.records import Call, CallStatus, Turn
from harness_worker.core.timing import Timing
from harness_worker.core.visits import Held, Visit, claim
from harness_worker.ports import Admission, GatePass, HeldTurn, ReadAttempt, RunningCall
from harness_worker.turn.running import execution
from harness_worker.turn.running import writes as running_writes
from harness_worker.wire import StopReason
from tests.unit import test_protocol_scripts as scripts
from tests.unit.memory_store import MemoryTurnStore
from tests.unit.simulation.faults import NONE, Fault, Faults, only, some
from tests.unit.simulation.world import TURN_ID, WatchedGate, World

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A rule without which something goes wrong.

    Args:
        off: Switches the rule off.
        faults: The faults under which it is missed.
        sign: How that shows: a part of a breach's text, or ``stop_reason``.
        cancels: How likely a cancel is.
        seeds: How many schedules to try at most.
        turns: How many turns the session has.
    """

    off: Patch
    sign: str
    faults: Faults | None = None
    cancels: float = 0.25
    seeds: int = 150
    turns: int = 1

    def world(self, seed: int) -> World:
        """A run in which the rule may be missed."""
        faults = some(seed) if self.faults is None else self.faults
        return World(seed, faults, turns=self.turns, cancels=self.cancels)


def endless_visit(patch: pytest.MonkeyPatch) -> None:
    """Heartbeats prolong a visit for ever."""

    def goes_on(self: MemoryTurnStore, visit: HeldTurn, ttl_s: float) -> bool:
        turn = self.turns[visit.turn_id]
        if (turn.owner, turn.fence) == visit[1:]:
            self.turns[visit.turn_id] = replace(turn, lease_until=self._clock() + ttl_s)
        return not turn.cancel_requested

    patch.setattr(MemoryTurnStore, "goes_on", goes_on)


def doubt_as_timeout(patch: pytest.MonkeyPatch) -> None:
    """A write whose end nobody saw is reported as a timeout."""

    def timeout(call: Call, _why: str) -> ToolOutcome:
        return timed_out(call)

    for module in (collect_writes, running_writes):
        patch.setattr(module, "unknown", timeout)


def doubt_stops_nothing(patch: pytest.MonkeyPatch) -> None:
    """After a write in doubt the plan continues."""

    def end_alone(call: Call, outcome: ToolOutcome, _plan: object, *, now: float) -> tuple[Call, ...]:
        return (end_call(call, outcome, now=now),)

    def never(_call: Call) -> bool:
        return False

    for module in (collect_writes, writes):
        patch.setattr(module, "end_with_doubt", end_alone)
    patch.setattr(writes, "is_doubt", never)


def open_makes_a_gate(patch: pytest.MonkeyPatch) -> None:
    """Dispatching creates a gate that was flushed."""
    really_open = MemoryGate.open

    def open_anew(self: MemoryGate, turn_id: str, fence: int, passes: Sequence[GatePass]) -> bool:
        self._turns.setdefault(turn_id, TurnGate(fence=fence))
        return really_open(self, turn_id, fence, passes)

    patch.setattr(MemoryGate, "open", open_anew)


def stop_leaves_the_gate_open(patch: pytest.MonkeyPatch) -> None:
    """A stop reads the gate without closing it."""
    really_settle = MemoryGate.settle

    def look_only(
        self: MemoryGate, turn_id: str, fence: int, reads: Sequence[ReadAttempt], *, close: bool
    ) -> list[SettledRead]:
        del close
        return really_settle(self, turn_id, fence, reads, close=False)

    def leave(self: MemoryGate, turn_id: str, fence: int) -> None:
        """Do nothing."""

    patch.setattr(MemoryGate, "settle", look_only)
    patch.setattr(MemoryGate, "close", leave)


def uncounted_nudge(patch: pytest.MonkeyPatch) -> None:
    """A wake-up during a live lease is not counted."""

    def silent(snapshot: Snapshot, *, owner: str, timing: Timing) -> Decision[Visit | Held | None]:
        decision = claim(snapshot, owner=owner, timing=timing)
        return replace(decision, turn=None) if isinstance(decision.result, Held) else decision

    patch.setattr(opening, "claim", silent)


def closed_for_good(patch: pytest.MonkeyPatch) -> None:
    """A closed gate stays closed for the next visit."""
    patch.setattr(TurnGate, "raised", TurnGate.leads)


def late_start(patch: pytest.MonkeyPatch) -> None:
    """A process that was stopped between admission and start starts nevertheless."""
    patch.setattr(execution, "STALE_START_S", 1e9)


def wait_for_the_deadline(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks at a turn while its tools run."""

    def never(turn: Turn, _calls: object, **_: object) -> float:
        return turn.deadline_at

    for module in (collect, progress):
        patch.setattr(module, "look_in", never)


def visits_make_tools_late(patch: pytest.MonkeyPatch) -> None:
    """A read's result counts only under the fence under which it was sent."""

    def complete(self: WatchedGate, run: RunningCall, completion: str) -> bool:
        gate, laws = self._turns.get(run.turn_id), self.laws[run.turn_id]
        sent = [at for at in laws.claims if at <= laws.asked[laws.kernel.me().name][0]]
        return gate is not None and gate.fence == len(sent) and MemoryGate.complete(self, run, completion)

    patch.setattr(WatchedGate, "complete", complete)


def no_queueing(patch: pytest.MonkeyPatch) -> None:
    """A turn starts even while an earlier turn of its session runs."""

    def claim_at_once(snapshot: Snapshot, *, owner: str, timing: Timing) -> Decision[Visit | Held | None]:
        return claim(replace(snapshot, is_behind=False), owner=owner, timing=timing)

    patch.setattr(opening, "claim", claim_at_once)


def started_as_not_run(patch: pytest.MonkeyPatch) -> None:
    """A stop reports a started write as ``not_run``."""
    patch.setattr(ending, "unknown", not_run)


def unfenced(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that has lost its turn can still commit."""

    def holds(_visit: Visit, snapshot: Snapshot) -> bool:
        return not snapshot.turn.status.is_final

    patch.setattr(visits, "holds", holds)


def everything_again(patch: pytest.MonkeyPatch) -> None:
    """A write whose process died always runs again, even if it is not ``retry_safe``."""

    def again(call: Call, *_: object, **__: object) -> tuple[Call, ...]:
        return (replace(call, attempt=call.attempt + 1, status=CallStatus.PENDING, lease_until=None, runner=None),)

    for module in (collect_writes, writes):
        patch.setattr(module, "lost_write", again)


def admitted_twice(patch: pytest.MonkeyPatch) -> None:
    """The gate admits a read as often as it is delivered."""
    refusal = Entry.refusal

    def let(self: Entry, now_ms: int, ttl_ms: int) -> Admission | None:
        answer = refusal(self, now_ms, ttl_ms)
        return None if answer is Admission.DUPLICATE else answer

    patch.setattr(Entry, "refusal", let)


STOPS = only(Fault.STOP_PROCESS, Fault.STOP_HOST, strength=4)
HANGS = only(Fault.HANG, Fault.STOP_HOST, strength=5)
KILLS = only(Fault.KILL_PROCESS, Fault.KILL_HOST, strength=4)

EXPERIMENTS = [
    Experiment(off=endless_visit, faults=only(Fault.HANG, strength=2), sign="never ended"),
    Experiment(off=doubt_as_timeout, sign="told as a timeout"),
    Experiment(off=doubt_stops_nothing, faults=STOPS, sign="started after a doubt"),
    Experiment(off=late_start, faults=STOPS, sign="started long after"),
    Experiment(off=wait_for_the_deadline, faults=only(Fault.LOSE_MESSAGE), sign=StopReason.DEADLINE),
    Experiment(off=visits_make_tools_late, faults=NONE, sign="ran again though nothing went wrong"),
    Experiment(off=started_as_not_run, cancels=1.0, seeds=300, sign="told as denied (not_run) but ran"),
    Experiment(off=unfenced, faults=HANGS, sign="results"),
    Experiment(off=everything_again, faults=KILLS, sign="unsafe write had its effect twice"),
    Experiment(off=admitted_twice, sign="entered twice"),
    Experiment(off=no_queueing, turns=3, sign="began before its turn"),
]


def signs(world: World) -> Iterator[str]:
    """Every breach of a run, and how its turn ended; without a rule the engine may even crash."""
    try:
        yield from world.run()
    except Exception as crash:  # noqa: BLE001 - whatever an engine without one of its rules does
        yield f"crashed: {crash!r}"
        return
    yield str(world.store.turns[TURN_ID].stop_reason)


SCRIPTS: list[tuple[Patch, Callable[[], None]]] = [
    (uncounted_nudge, scripts.test_chords_body_that_meets_a_live_lease_is_not_lost),
    (endless_visit, scripts.test_hung_visit_is_not_kept_alive_by_its_heartbeat),
    (doubt_as_timeout, scripts.test_doubtful_write_is_no_timeout_and_nothing_starts_beside_it),
    (wait_for_the_deadline, scripts.test_lost_publish_does_not_wait_for_the_deadline),
    (stop_leaves_the_gate_open, scripts.test_stop_reads_and_closes_the_gate_at_once),
    (open_makes_a_gate, scripts.test_stopped_coordinator_does_not_make_a_flushed_gate_anew),
    (closed_for_good, scripts.test_closed_gate_is_opened_by_the_next_visit),
    (started_as_not_run, scripts.test_stop_of_a_started_write_is_in_doubt),
]


@pytest.mark.parametrize(("off", "script"), SCRIPTS, ids=lambda f: f.__name__)
def test_script_notices_a_missing_rule(
    off: Patch, script: Callable[[], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the rule, the schedule that once broke it breaks it again."""
    caplog.set_level(logging.CRITICAL, logger="harness_worker.turn")
    off(monkeypatch)
    with pytest.raises(AssertionError):
        script()


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: f"{e.off.__name__}-{e.sign}".replace(" ", "_"))
def test_simulation_notices_a_missing_rule(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the rule, some random schedule breaks a promise."""
    caplog.set_level(logging.CRITICAL, logger="harness_worker.turn")
    experiment.off(monkeypatch)
    for seed in range(experiment.seeds):
        if any(experiment.sign in sign for sign in signs(experiment.world(seed))):
            return
    pytest.fail(f"{experiment.seeds} schedules did not miss it")
