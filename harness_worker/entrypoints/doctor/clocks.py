"""Whether the clocks of this host, the database and Redis agree."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from harness_worker.entrypoints.doctor.finding import Finding, ok, warning

MOST_S: Final = 1.0


def skew_s(read: Callable[[], float], now: Callable[[], float] = time.time) -> float:
    """How far another clock is at least ahead of this host's, in seconds: 0 if it was read when it says it was.

    Args:
        read: Reads the other clock, in seconds since the epoch.
        now: Reads this host's clock.
    """
    before = now()
    there = read()
    return there - min(max(there, before), now())


def judge_clocks(ahead_s: Mapping[str, float]) -> Iterator[Finding]:
    """The finding about clocks, given how far each is ahead of this host's; none without clocks."""
    if not ahead_s:
        return
    clocks = {"this host": 0.0, **ahead_s}
    apart_s = max(clocks.values()) - min(clocks.values())
    told = ", ".join(f"{name} {ahead:+.2f} s" for name, ahead in ahead_s.items())
    if apart_s <= MOST_S:
        yield ok("clocks", f"agree to {apart_s:.2f} s")
    else:
        mend = "run an NTP client on every host: times in answers and logs are off, deadlines are not"
        yield warning("clocks", f"are {apart_s:.1f} s apart: from this host's, {told}", mend)
