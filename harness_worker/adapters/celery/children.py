"""What a pool process does first, and what its parent does when it is gone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress


def make_group_leader() -> None:
    """Let this process lead a group of its own, so that ending it ends all that its tools started."""
    os.setpgid(0, 0)


class Children:
    """Ends what is left of the groups of pool processes that died.

    Args:
        pids: The pids of the pool's processes now.
    """

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._known: frozenset[int] = frozenset()

    def reap(self) -> None:
        """Kill the groups of those that were there last time and are gone."""
        now = frozenset(self._pids())
        for pid in self._known - now:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        self._known = now
