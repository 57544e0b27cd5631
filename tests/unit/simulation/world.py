"""The turns of one session in a small fleet, with faults; the engine is the real one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from harness_worker.adapters.memory.gate import MemoryGate
from harness_worker.adapters.memory.locks import MemoryLocks
from harness_worker.bootstrap.retrieval import make_retriever
from harness_worker.core.budget import BudgetLimits
from harness_worker.core.children import awaited_by, leaves_children
from harness_worker.core.decisions import Decision, Snapshot, T
from harness_worker.core.visits import Visit, frees_session
from harness_worker.core.writes import Go, Started
from harness_worker.errors import TransientError
from harness_worker.ports import Admission, Admitted, RunningCall, ignore
from harness_worker.turn.coordinator import Coordinator
from harness_worker.turn.finalizer import Finalizer
from harness_worker.turn.hooking import HookCaller
from harness_worker.turn.model_step import ModelStep
from harness_worker.turn.reconciler import Reconciler
from harness_worker.turn.running.call_runner import call_runner
from harness_worker.turn.running.job import Canvas, Job
from harness_worker.turn.running.locking import LockKeeper
from harness_worker.turn.running.tool_body import ToolBody
from harness_worker.turn.tool_selector import ToolSelector
from tests.unit import builders
from tests.unit.builders import READER, a_turn
from tests.unit.engine_kit import KeptBlobs
from tests.unit.memory_store import MemoryArtifacts, MemoryTurnStore
from tests.unit.simulation.asides_verdict import aside_breaches
from tests.unit.simulation.broker import Advance, Broker, Message
from tests.unit.simulation.families_verdict import family_breaches
from tests.unit.simulation.faults import FAULTS_END_S, Fault, Faults
from tests.unit.simulation.fleet import HEARTBEAT_S, Fleet, Stop, Worker
from tests.unit.simulation.hooks import SimulatedHooks
from tests.unit.simulation.kernel import Kernel
from tests.unit.simulation.laws import Laws, Witness
from tests.unit.simulation.outside import Outside
from tests.unit.simulation.person import Person
from tests.unit.simulation.script import LONG_OUTPUT_CHARS, TOOL_TIMEOUT_S, SimulatedModel, Tools
from tests.unit.simulation.verdict import breaches
from tests.unit.simulation.waits_verdict import wait_breaches

TURN_ID = "turn"
EPOCH_S = 1_000_000.0
TIMING = replace(builders.TIMING, visit_s=20.0, approval_s=25.0)
BUDGET = BudgetLimits(max_steps=8, max_tool_calls=20, timeout_s=150.0)
MODEL_TIMEOUT_S = 10.0
LONGEST_S = 400.0
AFTER_END_S = 45.0
LOSING_LOCKS = (Fault.FLUSH, Fault.STOP_HOST, Fault.STOP_PROCESS, Fault.GATE_ERROR, Fault.STORE_ERROR)
MOST_VISITS = 150
HOOKED = 0.4
"""How many of the agents have hooks."""

MOST_STOPS = 30
CANCELS_CHILD = 0.1
PASSED_OVER = 0.1


class Families(dict[str, Laws]):
    """The laws of each turn; those of one that another turn asks for are made when it is.

    Args:
        make: Makes them.
    """

    def __init__(self, make: Callable[[str], Laws]) -> None:
        self._make = make

    def __missing__(self, turn_id: str) -> Laws:
        """Make them."""
        self[turn_id] = self._make(turn_id)
        return self[turn_id]


class WatchedStore(MemoryTurnStore):
    """Shows every commit to the laws."""

    laws: Families
    person: Person
    on_birth: Callable[[str], None]

    def commit(self, before: Snapshot, decision: Decision[T]) -> None:
        """Write, then look at what was written."""
        super().commit(before, decision)
        laws = self.laws[before.turn.id]
        laws.committed(before, decision, self.turns[before.turn.id])
        entered = isinstance(decision.result, float) and bool(decision.calls)
        if entered or (isinstance(decision.result, Started) and decision.result.go is Go.RUN):
            laws.started()
        for child in decision.children:
            self.laws[child.id].posted()
            self.on_birth(child.id)
        parent = awaited_by(before.turn, decision.turn)
        if parent is not None:
            self.laws[parent].heard()
        if leaves_children(before, decision.turn):
            for child in self.children(before.turn.id):
                self.laws[child.id].cancelled()
        self.person.asked(before.turn.id, decision.events)
        if frees_session(before.turn, decision.turn):
            for each in self.laws.values():
                each.freed()


class WatchedGate(MemoryGate):
    """Shows admissions and completions to the laws."""

    laws: Mapping[str, Laws]

    def admit(self, run: RunningCall, cap_ms: int) -> Admitted:
        """Ask, then note a yes."""
        admitted = super().admit(run, cap_ms)
        if admitted.answer is Admission.OK:
            self.laws[run.turn_id].admitted()
        return admitted

    def goes_on(self, run: RunningCall) -> bool:
        """Ask again, then note a yes."""
        allowed = super().goes_on(run)
        if allowed:
            self.laws[run.turn_id].admitted()
        return allowed

    def complete(self, run: RunningCall, completion: str) -> bool:
        """Hand in, then note a yes."""
        accepted = super().complete(run, completion)
        if accepted:
            self.laws[run.turn_id].completed(run.call_id, run.attempt)
        return accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clock:
    """Implements ``ports.Clock`` in virtual time."""

    kernel: Kernel

    def monotonic(self) -> float:
        return self.kernel.now

    def wait(self, seconds: float) -> None:
        self.kernel.pause(seconds)


class World:
    """One run.

    Args:
        seed: Decides everything.
        faults: What goes wrong.
        turns: How many turns the session has.
        cancels: How likely it is that a client cancels a turn.
        asks: How likely it is that a call needs approval.
        locks: How likely it is that a call takes the one lock there is.
        thinks: Whether the agent reflects, and sums up what grows too long.
        delegates: Whether the agent may ask another, who may ask a third.
    """

    def __init__(  # noqa: PLR0913 - what a run may vary
        self,
        seed: int,
        faults: Faults,
        *,
        turns: int = 1,
        cancels: float = 0.25,
        asks: float = 0.0,
        locks: float = 0.0,
        thinks: bool = False,
        delegates: bool = False,
    ) -> None:
        self._seed = seed
        kernel = self.kernel = Kernel(seed)
        self.faults = faults
        self._skew_s = kernel.random.choice([-3.0, -1.0, 1.0, 3.0]) if faults.has(Fault.SKEW) else 0.0
        self.store = WatchedStore(lambda: EPOCH_S + kernel.now)
        self.all_laws = Families(self._laws_of)
        posted = [self.all_laws[turn_id].turn_id for turn_id in (TURN_ID, "turn-2", "turn-3")[:turns]]
        self.laws = self.all_laws[TURN_ID]
        self.store.laws = self.all_laws
        self.gate = self._new_gate()
        self.flushes = 0
        self.fleet = Fleet(
            kernel=kernel,
            faults=faults,
            serve=self._serve,
            on_death=self._died,
            ttl_s=TIMING.lease_ttl_s,
            advance_aside=lambda turn_id: self._advance(turn_id, was_told=True),
        )
        self._asks, self._lock_odds, self._thinks, self._delegates = asks, locks, thinks, delegates
        self._wire(kernel)
        self.person = Person(seed=seed, kernel=kernel, store=self.store, wake=self._wake)
        self.store.person = self.person
        self.store.on_birth = self._maybe_cancel
        self.store.passes_over = lambda: not faults.are_harmless and kernel.random.random() < PASSED_OVER
        self._post(TURN_ID, cancels)
        for turn_id in posted[1:]:
            kernel.at(kernel.random.uniform(0, 30), lambda turn_id=turn_id: self._post(turn_id, cancels))
        if faults.has(Fault.FLUSH):
            for _ in range(int(kernel.random.choice([1, 2, 4]) * faults.strength[Fault.FLUSH]) + 1):
                kernel.at(kernel.random.uniform(1, FAULTS_END_S), self._flush)

    def run(self) -> list[str]:
        """Let it happen; returns every breach of a law."""
        random.seed(self._seed)  # the engine's own backoff draws from here
        self.broker.send(Advance(turn_id=TURN_ID))
        self.fleet.start(self.reconciler.look)
        self.kernel.run(LONGEST_S * len(self.all_laws) * (4 if self._delegates else 1), self._is_over)
        self.end()
        return [*(breach for turn_id in self.all_laws for breach in self._breaches(turn_id)), *self._storms()]

    def _breaches(self, turn_id: str) -> Iterator[str]:
        laws = self.all_laws[turn_id]
        yield from laws.broken
        yield from breaches(self.store, turn_id, laws)
        turn, calls = self.store.load(turn_id) or (None, ())
        events = [event for event in self.store.events if event.turn_id == turn_id]
        yield from self.person.breaches(turn_id, events, calls)
        if turn is not None and self._thinks:
            yield from aside_breaches(turn, events, calls, self.model.asked)
        yield from self.hooks.breaches(turn_id, calls, gate_was_flushed=self.flushes > 0)
        if turn is not None:
            yield from family_breaches(turn, calls, self.store.children(turn_id), laws.met)
            yield from wait_breaches(self.store, turn_id)
        if len(laws.claims) > MOST_VISITS:
            yield f"a hot loop of {len(laws.claims)} visits"

    def _storms(self) -> Iterator[str]:
        if self.broker.stops > MOST_STOPS * len(self.all_laws):
            yield f"a storm of {self.broker.stops} stop commands"

    def end(self) -> None:
        """Drop what is still under way."""
        for worker in (*self.fleet.coordinators, *self.fleet.tool_workers):
            for process in tuple(worker.processes):
                process.kill()

    def _wire(self, kernel: Kernel) -> None:
        fleet, faults = self.fleet, self.faults
        fleet.broker = self.broker = Broker(
            kernel=kernel,
            faults=faults,
            deliver=fleet.deliver,
            broadcast=fleet.broadcast_stop,
            pause=self._pause,
        )
        fleet.has_locks = self._lock_odds > 0
        fleet.time_limit_s = TOOL_TIMEOUT_S + TIMING.hard_s
        store = fleet.store = cast("Any", Outside(lambda: self.store, Fault.STORE_ERROR, kernel, faults, self._pause))
        gate = fleet.gate = cast("Any", Outside(lambda: self.gate, Fault.GATE_ERROR, kernel, faults, self._pause))
        self.locks = self._new_locks()
        locks = fleet.locks = cast("Any", Outside(lambda: self.locks, Fault.GATE_ERROR, kernel, faults, self._pause))
        clock, owners, artifacts = _Clock(kernel=kernel), itertools.count(1), itertools.count(1)
        tools = Tools(
            kernel=kernel,
            watcher=Witness(self.all_laws),
            crash=self._crash,
            pause=fleet.strike,
            limits={},
            asks=self._asks,
            locks=self._lock_odds,
            thinks=self._thinks,
        )
        hooked = kernel.random.random() < HOOKED
        self.hooks = SimulatedHooks(random=kernel.random, pause=self._pause)
        agent = tools.agent((self.hooks,) if hooked else ())
        agents = {agent.name: agent}
        if self._delegates:
            agents = tools.agents((self.hooks,) if hooked else (), budget=BUDGET)
        model = self.model = SimulatedModel(kernel=kernel, faults=faults, pause=self._pause)
        self.reconciler = Reconciler(store, self.broker, every_s=HEARTBEAT_S)
        self.coordinator = Coordinator(
            store=store,
            gate=gate,
            dispatcher=self.broker,
            model_step=ModelStep(
                store=store,
                models={"": model},
                clock=clock,
                timeout_s=MODEL_TIMEOUT_S,
                hint=ignore,
                hooks=HookCaller(ignore),
                artifact_reader=READER,
                gathering=None,
                selector=ToolSelector(make_retriever),
            ),
            agents=agents,
            holding=self._holding,
            new_owner=lambda: f"visit-{next(owners)}",
            timing=TIMING,
            finalizer=Finalizer(
                agents=agents,
                store=store,
                hooks=HookCaller(ignore),
                dispatcher=self.broker,
                on_failure=ignore,
                trace=ignore,
            ),
            threshold_chars=LONG_OUTPUT_CHARS - 1,
            hooks=HookCaller(ignore),
            clock=clock,
            artifact_reader=READER,
        )
        named = Outside(lambda: MemoryArtifacts(self.store.artifacts), Fault.STORE_ERROR, kernel, faults, self._pause)
        self.runner = call_runner(
            store=store,
            artifacts=cast("Any", named),
            gate=gate,
            dispatcher=self.broker,
            body=ToolBody(
                soft_deadline=tools.soft_deadline,
                blobs=KeptBlobs(),
                clock=clock,
                new_artifact_id=lambda: f"art_{next(artifacts)}",
                threshold_chars=LONG_OUTPUT_CHARS - 1,
            ),
            keeper=LockKeeper(locks=locks, clock=clock),
            tools={tool.name: tool for tool in agent.tools},
            own={},
            agents=agents,
            hooks=HookCaller(ignore),
            on_late=lambda: None,
            timing=TIMING,
            clock=clock,
        )

    def _pause(self) -> None:
        """A moment on the network: others run, and this process may be struck."""
        self.fleet.strike()
        self.kernel.pause(self.kernel.random.uniform(0.0005, 0.01))

    def _serve(self, message: Message, runner: str) -> None:
        self._pause()
        if isinstance(message, Advance):
            self._advance(message.turn_id)
            return
        call = message.call
        job = Job(
            turn_id=message.turn_id,
            call_id=call.call_id,
            attempt=call.attempt,
            tool=call.tool,
            is_read=call.is_read,
            runner=runner,
        )
        handed = self.runner.run(job)
        self._pause()
        if handed is Canvas.CONTINUES:
            self.broker.go_on(message)

    def _advance(self, turn_id: str, *, was_told: bool = False) -> None:
        try:
            self.coordinator.advance(turn_id, was_told=was_told)
        except TransientError:
            return

    @contextmanager
    def _holding(self, visit: Visit) -> Generator[Stop]:
        worker, stop = cast("Worker", self.kernel.me().host), Stop(self.kernel)
        worker.visits[visit.owner] = (visit, stop)
        try:
            yield stop
        finally:
            worker.visits.pop(visit.owner, None)

    def _crash(self) -> None:
        process = self.kernel.me()
        self.kernel.die(lambda: self.fleet.kill(process))

    def _new_gate(self) -> WatchedGate:
        kernel, skew_s = self.kernel, self._skew_s
        gate = WatchedGate(lease_ttl_s=TIMING.lease_ttl_s, clock=lambda: EPOCH_S + kernel.now + skew_s)
        gate.laws = self.all_laws
        return gate

    def _new_locks(self) -> MemoryLocks:
        return MemoryLocks(lease_ttl_s=TIMING.lease_ttl_s, clock=lambda: EPOCH_S + self.kernel.now)

    def _flush(self) -> None:
        self.flushes += 1
        self.locks = self._new_locks()
        self.gate = self._new_gate()
        self.broker.flush()

    def _laws_of(self, turn_id: str) -> Laws:
        return Laws(
            kernel=self.kernel,
            store=self.store,
            turn_id=turn_id,
            is_faultless=self.faults.are_harmless,
            locks_may_be_lost=any(map(self.faults.has, LOSING_LOCKS)),
        )

    def _post(self, turn_id: str, cancels: float) -> None:
        """A client posts a turn, and perhaps cancels it later."""
        self.store.insert_turn(a_turn(id=turn_id, budget=BUDGET, agent="agent"))
        self._maybe_cancel(turn_id, cancels)

    def _maybe_cancel(self, turn_id: str, cancels: float = CANCELS_CHILD) -> None:
        if self.kernel.random.random() < cancels:
            self.kernel.at(self.kernel.now + self.kernel.random.uniform(0.5, 40), lambda: self._cancel(turn_id))

    def _cancel(self, turn_id: str) -> None:
        if self.store.cancel(turn_id):
            self.all_laws[turn_id].cancelled()
            self._wake(turn_id)

    def _wake(self, turn_id: str) -> None:
        self.broker.send(Advance(turn_id=turn_id))

    def _died(self) -> None:
        for laws in self.all_laws.values():
            laws.died()

    def _is_over(self) -> bool:
        ends = [turn.finished_at for turn in self.store.turns.values()]
        if len(ends) < len(self.all_laws) or None in ends:
            return False
        return self.fleet.is_idle or EPOCH_S + self.kernel.now > max(end or 0.0 for end in ends) + AFTER_END_S
