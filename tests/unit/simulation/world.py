"""One turn in a small fleet, with faults; the engine is the real one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from harness_worker.adapters.memory.gate import MemoryGate
from harness_worker.core.budget import BudgetLimits
from harness_worker.core.decisions import Decision, Snapshot, T
from harness_worker.core.timing import Timing
from harness_worker.core.visits import Visit
from harness_worker.core.writes import Go, Started
from harness_worker.errors import TransientError
from harness_worker.ports import Admission, Admitted, RunningCall
from harness_worker.turn.call_runner import CallRunner, Handed, Job
from harness_worker.turn.coordinator import Coordinator
from harness_worker.turn.model_step import ModelStep
from harness_worker.turn.reconciler import Reconciler
from harness_worker.turn.tool_body import ToolBody
from tests.unit.builders import a_turn
from tests.unit.memory_store import MemoryTurnStore
from tests.unit.simulation.broker import Advance, Broker, Message
from tests.unit.simulation.faults import FAULTS_END_S, Fault, Faults
from tests.unit.simulation.fleet import HEARTBEAT_S, Fleet, Stop, Worker
from tests.unit.simulation.kernel import Kernel
from tests.unit.simulation.laws import Laws
from tests.unit.simulation.outside import Outside
from tests.unit.simulation.script import LONG_OUTPUT_CHARS, TOOL_TIMEOUT_S, SimulatedModel, Tools
from tests.unit.simulation.verdict import breaches

TURN_ID = "turn"
EPOCH_S = 1_000_000.0
TIMING = Timing(visit_s=20.0)
BUDGET = BudgetLimits(max_steps=8, max_tool_calls=20, timeout_s=150.0)
MODEL_TIMEOUT_S = 10.0
LONGEST_S = 400.0
AFTER_END_S = 45.0
MOST_VISITS = 150
MOST_STOPS = 30


class WatchedStore(MemoryTurnStore):
    """Shows every commit to the laws."""

    laws: Laws

    def commit(self, before: Snapshot, decision: Decision[T]) -> None:
        """Write, then look at what was written."""
        super().commit(before, decision)
        self.laws.committed(before, decision, self.turns[before.turn.id])
        if isinstance(decision.result, Started) and decision.result.go is Go.RUN:
            self.laws.admitted()


class WatchedGate(MemoryGate):
    """Shows admissions and completions to the laws."""

    laws: Laws

    def admit(self, turn_id: str, call_id: str, attempt: int, cap_ms: int, runner: str) -> Admitted:
        """Ask, then note a yes."""
        admitted = super().admit(turn_id, call_id, attempt, cap_ms, runner)
        if admitted.answer is Admission.OK:
            self.laws.admitted()
        return admitted

    def complete(self, run: RunningCall, completion: str) -> bool:
        """Hand in, then note a yes."""
        accepted = super().complete(run, completion)
        if accepted:
            self.laws.completed(run.call_id, run.attempt)
        return accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blobs:
    """Implements ``ports.BlobStore``; nobody reads here."""

    def put(self, key: str, data: bytes) -> str:  # noqa: ARG002 - the port's signature
        return f"memory://{key}"

    def get(self, url: str) -> bytes:
        raise NotImplementedError(url)


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
        cancels: How likely it is that a client cancels the turn.
        make_gate: Makes a gate, at the start and after each flush.
    """

    def __init__(
        self,
        seed: int,
        faults: Faults,
        *,
        cancels: float = 0.25,
        make_gate: Callable[..., WatchedGate] = WatchedGate,
        make_store: Callable[..., WatchedStore] = WatchedStore,
    ) -> None:
        self._seed = seed
        kernel = self.kernel = Kernel(seed)
        self.faults = faults
        self._skew_s = kernel.random.choice([-3.0, -1.0, 1.0, 3.0]) if faults.has(Fault.SKEW) else 0.0
        self._make_gate = make_gate
        self.store = make_store(lambda: EPOCH_S + kernel.now)
        self.laws = Laws(kernel=kernel, store=self.store, turn_id=TURN_ID, is_faultless=faults.are_harmless)
        self.store.laws = self.laws
        self.gate = self._new_gate()
        self.flushes = 0
        self.fleet = Fleet(
            kernel=kernel,
            faults=faults,
            serve=self._serve,
            on_death=self.laws.died,
            ttl_s=TIMING.lease_ttl_s,
            advance_aside=lambda turn_id: self._advance(turn_id, was_told=True),
        )
        self._wire(kernel)
        self.store.insert_turn(a_turn(id=TURN_ID, budget=BUDGET, agent="agent"))
        if kernel.random.random() < cancels:
            kernel.at(kernel.random.uniform(0.5, 40), self._cancel)
        if faults.has(Fault.FLUSH):
            for _ in range(int(kernel.random.choice([1, 2, 4]) * faults.strength[Fault.FLUSH]) + 1):
                kernel.at(kernel.random.uniform(1, FAULTS_END_S), self._flush)

    def run(self) -> list[str]:
        """Let it happen; returns every breach of a law."""
        random.seed(self._seed)  # the engine's own backoff draws from here
        self.broker.send(Advance(turn_id=TURN_ID))
        self.fleet.start(self.reconciler.look)
        self.kernel.run(LONGEST_S, self._is_over)
        self.end()
        journal = breaches(self.store, TURN_ID, self.laws, gate_was_flushed=self.flushes > 0)
        return [*self.laws.broken, *journal, *self._storms()]

    def _storms(self) -> Iterator[str]:
        if len(self.laws.claims) > MOST_VISITS:
            yield f"a hot loop of {len(self.laws.claims)} visits"
        if self.broker.stops > MOST_STOPS:
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
        fleet.time_limit_s = TOOL_TIMEOUT_S + TIMING.hard_s
        store = fleet.store = cast("Any", Outside(lambda: self.store, Fault.STORE_ERROR, kernel, faults, self._pause))
        gate = fleet.gate = cast("Any", Outside(lambda: self.gate, Fault.GATE_ERROR, kernel, faults, self._pause))
        clock, owners, artifacts = _Clock(kernel=kernel), itertools.count(1), itertools.count(1)
        tools = Tools(kernel=kernel, watcher=self.laws, crash=self._crash, pause=fleet.strike, limits={})
        agent = tools.agent()
        model = SimulatedModel(kernel=kernel, faults=faults, pause=self._pause)
        self.reconciler = Reconciler(store, self.broker, every_s=HEARTBEAT_S)
        self.coordinator = Coordinator(
            store=store,
            gate=gate,
            dispatcher=self.broker,
            model_step=ModelStep(store=store, models={"": model}, clock=clock, timeout_s=MODEL_TIMEOUT_S),
            agents={agent.name: agent},
            holding=self._holding,
            new_owner=lambda: f"visit-{next(owners)}",
            timing=TIMING,
        )
        self.runner = CallRunner(
            store=store,
            gate=gate,
            dispatcher=self.broker,
            body=ToolBody(
                soft_deadline=tools.soft_deadline,
                blobs=_Blobs(),
                clock=clock,
                new_artifact_id=lambda: f"art_{next(artifacts)}",
                threshold_chars=LONG_OUTPUT_CHARS - 1,
            ),
            tools={tool.name: tool for tool in agent.tools},
            clock=clock,
            timing=TIMING,
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
        try:
            handed = self.runner.run(job)
        except TransientError:
            handed = Handed.ON if job.is_read else Handed.NOT
        self._pause()
        if handed is Handed.ON:
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
        gate = self._make_gate(lease_ttl_s=TIMING.lease_ttl_s, clock=lambda: EPOCH_S + kernel.now + skew_s)
        gate.laws = self.laws
        return gate

    def _flush(self) -> None:
        self.flushes += 1
        self.gate = self._new_gate()
        self.broker.flush()

    def _cancel(self) -> None:
        if self.store.cancel(TURN_ID):
            self.laws.cancelled()
            self.broker.send(Advance(turn_id=TURN_ID))

    def _is_over(self) -> bool:
        finished_at = self.store.turns[TURN_ID].finished_at
        if finished_at is None:
            return False
        return self.fleet.is_idle or EPOCH_S + self.kernel.now > finished_at + AFTER_END_S
