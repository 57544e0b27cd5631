"""Ends the children of a stack within its grace time."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from typing import Final

from harness_worker.entrypoints.stack.child import Child
from harness_worker.entrypoints.stack.logs import LogWriter
from harness_worker.entrypoints.stack.signals import StopSignal

CHILD_GRACE_SHARE: Final = 0.7
"""A child's own share of the grace time; the rest is for children that overrun it, and for the one that ends last."""

_URGENT_SHARE: Final = 0.8
_KILL_SHARE: Final = 0.9
_LAST_TIMEOUT_S: Final = 5.0
_LOOK_S: Final = 0.02
_FOUNDATION: Final = "redis"


def drain(children: Sequence[Child], stop: StopSignal, log: LogWriter, *, grace_s: float) -> None:
    """Send SIGTERM to all, then SIGQUIT, then SIGKILL; Redis ends last, because the others still use it.

    Args:
        children: All children.
        stop: A second Ctrl-C on it kills at once.
        log: Where to log what happens.
        grace_s: How long everything may take, in seconds.
    """
    began = time.monotonic()
    services = [child for child in children if child.role != _FOUNDATION]
    foundation = [child for child in children if child.role == _FOUNDATION]
    if any(child.exit_code() is None for child in services):
        log.line("up", f"stopping: waiting up to {grace_s:g} s for what is running (Ctrl-C again stops at once)")
    for sig, share in ((signal.SIGTERM, _URGENT_SHARE), (signal.SIGQUIT, _KILL_SHARE)):
        _end(services, stop, sig, until=began + grace_s * share)
    _finish(services, log)
    _end(foundation, stop, signal.SIGTERM, until=min(time.monotonic() + _LAST_TIMEOUT_S, began + grace_s))
    _finish(foundation, log)
    log.line("up", "stopped")


def _end(children: Sequence[Child], stop: StopSignal, sig: signal.Signals, *, until: float) -> None:
    for child in children:
        child.send(sig)
    while not stop.at_once and time.monotonic() < until and any(child.exit_code() is None for child in children):
        threading.Event().wait(_LOOK_S)


def _finish(children: Sequence[Child], log: LogWriter) -> None:
    for child in children:
        if child.exit_code() is None:
            log.line("up", f"{child.role} did not end in time: killed")
        child.kill()
