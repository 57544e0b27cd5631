"""Looks at something again and again until it is as it is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from harness_worker.wire import JsonObject

if TYPE_CHECKING:
    from harness_worker.ports import Clock

MIN_INTERVAL_S: Final = 0.25
MAX_INTERVAL_S: Final = 2.0
LOOKS_A_WAIT: Final = 10
"""Polls per time waited so far: the end of a wait is noticed about a tenth of it late."""


def poll(
    look: Callable[[], JsonObject], is_over: Callable[[JsonObject], bool], most_s: float, clock: Clock
) -> JsonObject:
    """Poll ``look`` until its result ``is_over``, or return the latest one when ``most_s`` seconds have passed."""
    began = clock.monotonic()
    while not is_over(found := look()):
        waited_s = clock.monotonic() - began
        if waited_s >= most_s:
            break
        clock.wait(min(most_s - waited_s, MAX_INTERVAL_S, max(MIN_INTERVAL_S, waited_s / LOOKS_A_WAIT)))
    return found
