"""Restarts child processes that die, and ends them in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, Self

from harness_worker.entrypoints.stack.child import Child
from harness_worker.entrypoints.stack.drain import drain
from harness_worker.entrypoints.stack.failures import StartFailed, ending, start_failure
from harness_worker.entrypoints.stack.logs import LogWriter
from harness_worker.entrypoints.stack.restarts import Backoff
from harness_worker.entrypoints.stack.signals import StopSignal

_LOOK_S: Final = 0.1
_START_TIMEOUT_S: Final = 120.0
_STARTING_S: Final = 5.0
"""A child that lived longer than this, in seconds, did not fail at its start, whether it was ready or not."""


class Supervisor:
    """Starts children, restarts those that die, and ends all at the end of its context, Redis last.

    Args:
        stop: Says when to stop.
        log: Where to log what it does.
        grace_s: How long ending may take, in seconds.
        on_change: Called after a child got a new process.
    """

    def __init__(self, stop: StopSignal, log: LogWriter, *, grace_s: float, on_change: Callable[[], object]) -> None:
        self.children: list[Child] = []
        self._stop = stop
        self._log = log
        self._grace_s = grace_s
        self._on_change = on_change
        self._backoff: dict[Child, Backoff] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        drain(self.children, self._stop, self._log, grace_s=self._grace_s)

    def start(self, child: Child) -> None:
        """Start a child and keep it running from now on."""
        self.children.append(child)
        self._backoff[child] = Backoff()
        child.start()

    def forget(self, child: Child) -> None:
        """Stop keeping a child running; ends it if it still runs."""
        child.kill()
        self.children.remove(child)

    def await_ready(self, children: Sequence[Child], is_ready: Callable[[Child], bool]) -> None:
        """Wait until all of these are ready.

        Raises:
            StartFailed: One ended, or was not ready in time.
            StopRequested: Somebody asked to stop meanwhile.
        """
        waiting = list(children)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while waiting:
            self._stop.check()
            for child in self.children:
                self._check_started(child)
            waiting = [child for child in waiting if not is_ready(child)]
            if waiting and time.monotonic() > deadline:
                roles = ", ".join(child.role for child in waiting)
                raise StartFailed(f"not ready after {_START_TIMEOUT_S:g} s: {roles}; see the log above")
            self._stop.wait(_LOOK_S if waiting else 0.0)

    def watch(self) -> None:
        """Restart children that die, until somebody asks to stop."""
        while not self._stop.wait(_LOOK_S):
            for child in self.children:
                self._tend(child)

    def _check_started(self, child: Child) -> None:
        code = child.exit_code()
        if code is not None:
            child.bury()
            raise start_failure(child.role, code, child.last_words())

    def _tend(self, child: Child) -> None:
        code = child.exit_code()
        if code is None:
            return
        backoff = self._backoff[child]
        if not backoff.pending:
            lived_s = time.monotonic() - child.started_at
            delay_s = backoff.died(lived_s=lived_s, was_ready=child.ready_said or lived_s > _STARTING_S)
            child.bury()
            self._log.line("up", f"{child.role} {ending(code)}; starting it again in {delay_s:g} s")
        if backoff.is_due():
            backoff.restarted()
            self._restart(child, backoff)

    def _restart(self, child: Child, backoff: Backoff) -> None:
        try:
            child.start()
            self._on_change()
        except OSError as refused:  # no process, memory or disk space for a moment: the others go on
            child.kill()
            delay_s = backoff.died(lived_s=0.0, was_ready=False)
            self._log.line("up", f"{child.role} cannot be started ({refused.strerror}); trying again in {delay_s:g} s")
