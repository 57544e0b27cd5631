"""How the command line loads modules."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

from harness_worker.entrypoints.messages import INTERRUPTED


@contextmanager
def loading() -> Generator[None]:
    """Within the context, modules are loaded without garbage collection, and Ctrl-C ends the process at once.

    Modules make little garbage, and load faster without looking for it. An exception for Ctrl-C would be lost if it
    were raised in one of the callbacks by which the import system cleans up.
    """
    would_raise = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    gc.disable()
    if would_raise:
        signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        if would_raise:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        gc.freeze()
        gc.enable()


def _end(_signum: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
