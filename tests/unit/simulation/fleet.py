"""Workers: where messages arrive, what a death costs, and who beats for what runs."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from harness_worker.core.visits import Visit
from harness_worker.errors import TransientError
from harness_worker.ports import Gate, HeldTurn, Locks, RunningCall, TurnStore
from tests.unit.simulation.broker import Broker, Message, Run
from tests.unit.simulation.faults import Fault, Faults
from tests.unit.simulation.kernel import FOREVER_S, Host, Kernel, Process

HEARTBEAT_S = 2.0
SLOTS = 3
SECOND_KNOCK_S = 0.5


class Stop:
    """Implements ``ports.StopSignal`` in virtual time, for the process that makes it."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._process = kernel.me()
        self._is_set = False

    def set(self) -> None:
        """Tell it."""
        self._is_set = True
        self._process.interrupt()

    def is_set(self) -> bool:
        """See ``ports.StopSignal.is_set``."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """See ``ports.StopSignal.wait``."""
        if not self._is_set:
            self._kernel.listen(FOREVER_S if timeout is None else timeout)
        return self._is_set


class Worker(Host):
    """One worker and what it is busy with.

    Args:
        name: Of the worker.
        runs_tools: Whether it is a tool worker, with a few processes; else a coordinator, with threads.
    """

    def __init__(self, name: str, *, runs_tools: bool) -> None:
        super().__init__(name)
        self.runs_tools = runs_tools
        self.visits: dict[str, tuple[Visit, Stop]] = {}
        self.busy: dict[Process, tuple[Message, str]] = {}
        self.waiting: deque[Message] = deque()
        self.pids = itertools.count(1)
        self.free = [f"{name}/{next(self.pids)}" for _ in range(SLOTS)]


@dataclass(slots=True, kw_only=True)
class Fleet:
    """Two coordinators and two tool workers.

    Args:
        kernel: Virtual time.
        faults: What goes wrong.
        serve: Does what a message says, as the runner of that name.
        on_death: Told of each process that is killed.
        ttl_s: How long a heartbeat is good for.
        advance_aside: What a coordinator does with a turn that it was told to stop.
    """

    kernel: Kernel
    faults: Faults
    serve: Callable[[Message, str], None]
    on_death: Callable[[], None]
    ttl_s: float
    advance_aside: Callable[[str], None]
    coordinators: tuple[Worker, ...] = field(init=False)
    tool_workers: tuple[Worker, ...] = field(init=False)
    broker: Broker = field(init=False)
    store: TurnStore = field(init=False)
    gate: Gate = field(init=False)
    locks: Locks = field(init=False)
    time_limit_s: float = FOREVER_S
    has_locks: bool = False

    def __post_init__(self) -> None:
        self.coordinators = tuple(Worker(name, runs_tools=False) for name in ("c1", "c2"))
        self.tool_workers = tuple(Worker(name, runs_tools=True) for name in ("t1", "t2"))

    def start(self, look: Callable[[], object]) -> None:
        """Begin to beat, and to look for overdue turns."""
        for worker in (*self.coordinators, *self.tool_workers):
            self.kernel.every(HEARTBEAT_S, lambda worker=worker: self._maybe_beat(worker))
        for worker in self.coordinators:
            self.kernel.every(HEARTBEAT_S, lambda worker=worker: self._service(worker, look))

    @property
    def is_idle(self) -> bool:
        """Whether nobody works on anything, and no message is on its way."""
        workers = (*self.coordinators, *self.tool_workers)
        return not self.broker.under_way and not any(w.processes or w.waiting for w in workers)

    def deliver(self, message: Message) -> None:
        """Give a message to some worker."""
        worker = self.kernel.random.choice(self.tool_workers if isinstance(message, Run) else self.coordinators)
        worker.waiting.append(message)
        self._work_off(worker)

    def broadcast_stop(self, turn_id: str) -> None:
        """Tell every worker that is not stopped itself to stop what it does for the turn."""
        for worker in (*self.coordinators, *self.tool_workers):
            soon = self.kernel.now + self.kernel.random.uniform(0.001, 0.02)
            obey = self._stop_tools if worker.runs_tools else self._stop_visits
            self.kernel.at(soon, lambda worker=worker, obey=obey: self._service(worker, lambda: obey(worker, turn_id)))

    def _stop_visits(self, worker: Worker, turn_id: str) -> None:
        for visit, stop in tuple(worker.visits.values()):
            if visit.turn.id == turn_id:
                self.kernel.at(self.kernel.now, stop.set)
        self.advance_aside(turn_id)

    def _stop_tools(self, worker: Worker, turn_id: str) -> None:
        told = tuple(process for process, (message, _) in worker.busy.items() if message.turn_id == turn_id)
        for process in told:
            self.kernel.at(self.kernel.now, process.interrupt)
        self.kernel.at(self.kernel.now + SECOND_KNOCK_S, lambda: self._kill_deaf(worker, told))

    def _kill_deaf(self, worker: Worker, told: Sequence[Process]) -> None:
        for process in told:
            if process in worker.busy:
                self.kill(process)

    def strike(self) -> None:
        """Where a process calls the outside, it may die, stop or hang."""
        process = self.kernel.me()
        worker = self._worker(process)
        if process not in worker.busy:
            return
        if self._strikes(Fault.KILL_PROCESS, 0.01):
            self.kernel.die(lambda: self.kill(process))
        if self._strikes(Fault.KILL_HOST, 0.005):
            self.kernel.die(lambda: self._kill_worker(worker))
        if worker.runs_tools and self._strikes(Fault.STOP_PROCESS, 0.0075):
            process.stopped_until = self.kernel.now + self.kernel.random.uniform(0.5, 30)
        if self._strikes(Fault.STOP_HOST, 0.005):
            worker.stopped_until = self.kernel.now + self.kernel.random.uniform(0.5, 30)
        if not worker.runs_tools and self._strikes(Fault.HANG, 0.005):
            process.stopped_until = FOREVER_S

    def kill(self, process: Process) -> None:
        """Kill a pool process, whose parent lives on and notices; a coordinator's thread dies with its worker."""
        worker = self._worker(process)
        if process not in worker.busy:
            return
        if not worker.runs_tools:
            self._kill_worker(worker)
            return
        message, runner = self._end(worker, process)
        soon_s = self.kernel.random.uniform(0.05, 0.5)
        self._tell_lost(worker, message, runner, soon_s)
        if self.kernel.random.random() < 0.9:
            self.broker.send(message, soon_s)

    def _work_off(self, worker: Worker) -> None:
        while worker.waiting and worker.free:
            message = worker.waiting.popleft()
            runner = worker.free.pop(0) if worker.runs_tools else f"{worker.name}/{next(worker.pids)}"
            self._start(worker, message, runner)

    def _start(self, worker: Worker, message: Message, runner: str) -> None:
        def work() -> None:
            self.serve(message, runner)
            del worker.busy[process]
            self._give_back(worker, runner)

        process = self.kernel.spawn(f"{runner}:{next(worker.pids)}", worker, work)
        worker.busy[process] = (message, runner)
        if worker.runs_tools:
            self.kernel.at(self.kernel.now + self.time_limit_s, lambda: self._hard_limit(worker, process))

    def _give_back(self, worker: Worker, runner: str) -> None:
        if worker.runs_tools:
            worker.free.append(runner)
            self.kernel.at(self.kernel.now, lambda: self._work_off(worker))

    def _hard_limit(self, worker: Worker, process: Process) -> None:
        """The parent kills a process whose time is over, unless it is stopped itself; then later."""
        if process not in worker.busy:
            return
        if worker.stopped_until > self.kernel.now:
            self.kernel.at(worker.stopped_until, lambda: self._hard_limit(worker, process))
            return
        message, runner = self._end(worker, process)
        self._tell_lost(worker, message, runner, 0.01, overran=True)

    def _end(self, worker: Worker, process: Process) -> tuple[Message, str]:
        message, runner = worker.busy.pop(process)
        process.kill()
        self.on_death()
        self._give_back(worker, f"{worker.name}/{next(worker.pids)}")
        return message, runner

    def _kill_worker(self, worker: Worker) -> None:
        """All of it dies; what it had comes back to the queue some time later, and so does the worker."""
        messages = [message for message, _ in worker.busy.values()] + list(worker.waiting)
        for process in tuple(worker.processes):
            process.kill()
        worker.busy.clear()
        worker.waiting.clear()
        worker.visits.clear()
        self.on_death()
        worker.free = [f"{worker.name}/{next(worker.pids)}" for _ in range(SLOTS)]
        worker.stopped_until = self.kernel.now + self.kernel.random.uniform(0.5, 2)
        for message in messages:
            if self.kernel.random.random() < 0.9:
                self.broker.send(message, self.kernel.random.uniform(1, 10))

    def _tell_lost(
        self, worker: Worker, message: Message, runner: str, soon_s: float, *, overran: bool = False
    ) -> None:
        if not isinstance(message, Run):
            return
        run = _running(message, runner)

        def tell_gate() -> None:
            if overran:
                self.gate.beat([run])
            self.gate.lose(run)

        def tell() -> None:
            self._guarded(lambda: self.store.lose_call(run))
            self._guarded(tell_gate)
            if self.has_locks:
                self._guarded(lambda: self.locks.lose(run))
            self.broker.advance(run.turn_id, "interactive")

        self.kernel.at(self.kernel.now + soon_s, lambda: self._service(worker, tell))

    def _maybe_beat(self, worker: Worker) -> None:
        if worker.busy:
            self._service(worker, lambda: self._beat(worker))

    def _beat(self, worker: Worker) -> None:
        """What a worker's parent process says of what its processes do."""
        for visit, stop in tuple(worker.visits.values()):
            if self.store.beat_turns([HeldTurn(visit.turn.id, visit.owner, visit.turn.fence)], self.ttl_s):
                self.kernel.at(self.kernel.now, stop.set)
        runs = [(m.call.is_read, _running(m, r)) for m, r in worker.busy.values() if isinstance(m, Run)]
        if self.has_locks:
            self._guarded(lambda: self.locks.beat([run for _, run in runs]))
        reads = [run for is_read, run in runs if is_read]
        writes = [run for is_read, run in runs if not is_read]
        self._guarded(lambda: self.gate.beat(reads) if reads else None)
        self._guarded(lambda: self.store.beat_calls(writes, self.ttl_s) if writes else None)

    def _service(self, worker: Worker, work: Callable[[], object]) -> None:
        """Do ``work`` in a process of the worker that is no task; what does not answer is left to the next time."""
        self.kernel.spawn(f"{worker.name}/service", worker, lambda: self._guarded(work))

    @staticmethod
    def _guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except TransientError:
            return

    def _worker(self, process: Process) -> Worker:
        return cast("Worker", process.host)

    def _strikes(self, kind: Fault, chance: float) -> bool:
        return self.faults.strikes(kind, chance, self.kernel.random, self.kernel.now)


def _running(message: Run, runner: str) -> RunningCall:
    call = message.call
    return RunningCall(turn_id=message.turn_id, call_id=call.call_id, attempt=call.attempt, runner=runner)
