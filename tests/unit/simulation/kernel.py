"""Virtual time, and processes that take turns: real synchronous code that pauses at every call to the outside.

A process is a greenlet. One runs at a time, until it pauses; which one is next depends on the seed alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any, NoReturn

import greenlet  # pyright: ignore[reportMissingTypeStubs]

FOREVER_S = 1e9


class Host:
    """Processes that live and stop together: a worker and what it started."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stopped_until = 0.0
        self.processes: list[Process] = []


class Process:
    """One line of execution on a host; ``alive`` is false from the moment it is killed or has ended."""

    def __init__(self, kernel: Kernel, name: str, host: Host, work: Callable[[], None]) -> None:
        self._kernel = kernel
        self._work = work
        self._greenlet: Any = greenlet.greenlet(self._run, parent=kernel.hub)
        self.name = name
        self.host = host
        self.alive = True
        self.stopped_until = 0.0
        self.pauses = 0
        self.is_listening = False
        self.was_interrupted = False

    def start(self) -> None:
        """Let it run for the first time."""
        self._resume(self.pauses)

    def interrupt(self) -> None:
        """Cut the pause short in which it listens to signals; at other times a signal is lost on it."""
        if self.is_listening:
            self.was_interrupted = True
            self._resume(self.pauses)

    def wake_at(self, when: float) -> None:
        """End the pause that begins now at ``when``, unless a signal does earlier."""
        self.pauses += 1
        number = self.pauses
        self._kernel.at(when, lambda: self._resume(number))

    def _resume(self, pause: int) -> None:
        if not self.alive or pause != self.pauses:
            return
        stopped_until = max(self.stopped_until, self.host.stopped_until)
        if stopped_until > self._kernel.now:
            self._kernel.at(stopped_until + self._kernel.random.random() * 0.05, lambda: self._resume(pause))
            return
        self.pauses += 1
        self._kernel.running = self
        self._greenlet.switch()
        self._kernel.running = None

    def kill(self) -> None:
        """End it where it is; only from outside of it. Its handlers run, but reach nothing (:meth:`Kernel.pause`)."""
        if self.alive:
            self._end()
            self._greenlet.throw()

    def _run(self) -> None:
        self._work()
        if self.alive:  # else it was killed where a handler takes whatever is raised, and went on to its end
            self._end()

    def _end(self) -> None:
        self.alive = False
        self.host.processes.remove(self)


class Kernel:
    """The clock, the queue of what happens next, and the dice."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - a schedule, not a secret
        self.now = 0.0
        self.running: Process | None = None
        self.hub: Any = greenlet.getcurrent()
        self._queue: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0

    def at(self, when: float, work: Callable[[], object]) -> None:
        """Do ``work`` at ``when``, outside of every process."""
        self._count += 1
        heapq.heappush(self._queue, (max(when, self.now), self._count, work))

    def every(self, seconds: float, work: Callable[[], object]) -> None:
        """Do ``work`` again and again, first at a random point of the first period."""

        def tick() -> None:
            self.at(self.now + seconds, tick)
            work()

        self.at(self.now + self.random.random() * seconds, tick)

    def spawn(self, name: str, host: Host, work: Callable[[], None]) -> Process:
        """Start a process."""
        process = Process(self, name, host, work)
        host.processes.append(process)
        self.at(self.now, process.start)
        return process

    def me(self) -> Process:
        """The process that runs now; one that was killed meanwhile ends here."""
        process = self.running
        if process is None or not process.alive:
            raise greenlet.GreenletExit
        return process

    def pause(self, seconds: float) -> None:
        """Let others run for ``seconds`` of virtual time; the running process may not come back."""
        self.me().wake_at(self.now + seconds)
        self.hub.switch()
        self.me()

    def listen(self, seconds: float) -> bool:
        """Pause, but let a signal cut it short; whether one did."""
        process = self.me()
        process.is_listening, process.was_interrupted = True, False
        try:
            self.pause(seconds)
        finally:
            process.is_listening = False
        return process.was_interrupted

    def die(self, kill: Callable[[], object]) -> NoReturn:
        """Have the running process killed by ``kill``, from outside of it."""
        self.me()
        self.at(self.now, kill)
        self.hub.switch()
        raise greenlet.GreenletExit

    def run(self, until: float, is_over: Callable[[], bool]) -> None:
        """Let time pass."""
        while self._queue and self.now < until and not is_over():
            self.now, _, work = heapq.heappop(self._queue)
            work()
