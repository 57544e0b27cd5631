"""Soft deadlines by signal, in the main thread of a pool process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Final

import psutil
from celery.exceptions import SoftTimeLimitExceeded

from harness_worker.ports import DeadlineReached

_END = (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)
_KNOCK = frozenset({signal.SIGUSR1})
MOST_DEAD: Final = 50
"""How many processes that tools started may have ended without anybody waiting for them; the system counts them."""


def keep_knocks_for_bodies() -> None:
    """Block ``SIGUSR1`` until a body runs; call this in each new pool process.

    Ignoring the signal would not be enough: billiard sets its own handler after Celery's initializers have run, which
    raises wherever the process is. Besides, a stop that comes a moment before its body starts would be lost.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _KNOCK)


class SignalDeadline:
    """Implements ``ports.SoftDeadline``: raises ``SoftTimeLimitExceeded`` in the body, as Celery's own limit does.

    The deadline itself is a timer of the process. Celery's soft limit (``SIGUSR1``, a little later) is a second
    knock for a body that swallowed the first. Neither reaches the harness's own code: outside a body, they are blocked
    or ignored. A signal to terminate ends the process at once, as a crash would, because nobody can say what the body
    has done by then.

    Args:
        remaining_s: After how many seconds the body is stopped.
        is_revoked: Whether the body may be stopped by ``SIGUSR1`` before that.
    """

    def __init__(self, remaining_s: float, is_revoked: Callable[[], bool]) -> None:
        self._remaining_s = max(remaining_s, 0.001)
        self._until = time.monotonic() + self._remaining_s
        self._is_revoked = is_revoked
        self._inside = False
        self._was_stopped = False
        self._blocked: set[int] = set()

    def __enter__(self) -> None:
        for ending in _END:  # billiard would raise SystemExit in the body, and an interrupted call would look failed
            signal.signal(ending, signal.SIG_DFL)
        self._blocked = set(signal.pthread_sigmask(signal.SIG_BLOCK, _KNOCK))
        self._inside = True
        try:
            signal.signal(signal.SIGALRM, self._stop)
            signal.signal(signal.SIGUSR1, self._stop_if_meant)
            signal.setitimer(signal.ITIMER_REAL, self._remaining_s)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _KNOCK)
        except SoftTimeLimitExceeded as stopped:  # its time is over, or it was stopped while the signal was blocked
            self.__exit__(type(stopped), stopped, None)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._inside = False
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # also one that the body blocked, and would stop the next one
        signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked | _KNOCK)  # whatever else the body blocked
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # because of threads that a tool may have left behind
        if self._was_stopped and isinstance(error, SoftTimeLimitExceeded):
            end_descendants()
            raise DeadlineReached from None

    def _stop(self, _signum: int, _frame: FrameType | None) -> None:
        if self._inside:
            self._was_stopped = True
            raise SoftTimeLimitExceeded

    def _stop_if_meant(self, signum: int, frame: FrameType | None) -> None:
        """Stop the body, unless the signal was meant for an earlier call, which may have ended before it arrived.

        A body that is stopped before its time is over is told only once: a cancel may knock several times, and the
        body may be cleaning up after the first.
        """
        if self._inside and (time.monotonic() >= self._until or (not self._was_stopped and self._is_revoked())):
            self._stop(signum, frame)


def end_descendants() -> None:
    """Kill what this process's tool started: everything else in the group that this process leads, if it does."""
    mine = os.getpid()
    others = [pid for pid in psutil.pids() if pid != mine and _group_of(pid) == mine]
    for pid in others:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    if len(others) > MOST_DEAD:  # not always: a tool that does wait for one would read that it ended well
        for pid in others:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except (ProcessLookupError, PermissionError):
        return None
