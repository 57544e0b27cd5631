"""The wish to stop a stack, as a signal brings it."""

from __future__ import annotations

import signal
import sys
from itertools import count
from threading import Thread
from types import FrameType
from typing import Any

import pytest

from harness_worker.entrypoints.stack.signals import StopSignal, stop_on_signals

LINES = 60
"""More than a wait runs."""


def _interrupted_at(line: int) -> StopSignal:
    """A wait into which a signal comes at that line of Python, counted from 0, if it gets so far."""
    stop, lines = StopSignal(), count()

    def trace(_frame: FrameType, event: str, _arg: object) -> Any:  # noqa: ANN401 - a trace function, as this is
        if event == "line" and next(lines) == line:
            stop.request(signal.SIGTERM)
        return trace

    sys.settrace(trace)
    try:
        stop.wait(0.001)
    finally:
        sys.settrace(None)
    return stop


def test_signal_may_come_at_any_moment_of_a_wait() -> None:
    """Its handler runs in the midst of what the main thread does, so that it must need nothing that a wait holds."""
    waits = Thread(target=lambda: [_interrupted_at(line) for line in range(LINES)], daemon=True)
    waits.start()
    waits.join(60.0)
    assert not waits.is_alive()


def test_wait_ends_when_somebody_asks() -> None:
    """At once, and every later wait too."""
    stop = StopSignal()
    assert not stop.wait(0.0)
    stop.request(signal.SIGTERM)
    assert stop.wait(60.0)
    assert stop.wait(60.0)
    assert not stop.interrupted


@pytest.mark.parametrize(("before", "stops"), [(signal.SIG_IGN, False), (signal.SIG_DFL, True)])
def test_closed_terminal_stops_what_nohup_does_not_keep(before: signal.Handlers, stops: bool) -> None:
    """``nohup`` has the signal ignored, so that what it starts goes on."""
    usual = signal.signal(signal.SIGHUP, before)
    try:
        with stop_on_signals() as stop:
            signal.raise_signal(signal.SIGHUP)
        assert stop.asked is stops
        assert signal.getsignal(signal.SIGHUP) is before
    finally:
        signal.signal(signal.SIGHUP, usual)


def test_second_interrupt_stops_at_once() -> None:
    """The first lets what is running end; SIGTERM never hurries."""
    stop = StopSignal()
    stop.request(signal.SIGINT)
    assert (stop.interrupted, stop.at_once) == (True, False)
    stop.request(signal.SIGTERM)
    assert not stop.at_once
    stop.request(signal.SIGINT)
    assert stop.at_once
