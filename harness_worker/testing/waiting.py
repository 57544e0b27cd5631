"""Waiting for a condition with a deadline, instead of sleeping for a guessed time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    predicate: Callable[[], T | None], description: str, timeout_s: float = 20.0, *, interval_s: float = 0.02
) -> T:
    """Call ``predicate`` repeatedly until it returns something true.

    Args:
        predicate: The condition.
        description: What is waited for, in the words of the failure's message.
        timeout_s: Seconds before giving up.
        interval_s: Seconds between two calls.

    Returns:
        The first true value.

    Raises:
        TimeoutError: The predicate returned nothing true in time.
    """
    deadline = time.monotonic() + timeout_s
    while not (answer := predicate()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:g} s in vain for: {description}")
        threading.Event().wait(interval_s)
    return answer
