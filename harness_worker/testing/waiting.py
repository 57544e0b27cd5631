"""Waiting for a condition with a deadline, in the place of sleeping for a guessed time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    predicate: Callable[[], T | None], description: str, timeout_s: float = 20.0, *, interval_s: float = 0.02
) -> T:
    """Ask ``predicate`` again and again until its answer is true.

    Args:
        predicate: The question.
        description: What is waited for, as the failure shall say it.
        timeout_s: Seconds until it is given up.
        interval_s: Seconds between two questions.

    Returns:
        The first true answer.

    Raises:
        TimeoutError: It never was.
    """
    deadline = time.monotonic() + timeout_s
    while not (answer := predicate()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:g} s in vain for: {description}")
        threading.Event().wait(interval_s)
    return answer
