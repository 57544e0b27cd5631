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
    """Replaces pool processes that died, and ends what is left of their groups.

    Celery looks itself when a process's pipe closes, which is often a moment before the process can be waited for; the
    next look of its own is up to 5 seconds later.

    Args:
        maintain: Celery's own look at its pool.
        pids: The pids of the pool's processes now.
    """

    def __init__(self, maintain: Callable[[], object], pids: Callable[[], Iterable[int]]) -> None:
        self._maintain = maintain
        self._pids = pids
        self._known: frozenset[int] = frozenset()

    def reap(self) -> None:
        """Look at the pool, then kill the groups of those that were there last time and are gone."""
        self._maintain()
        now = frozenset(self._pids())
        for pid in self._known - now:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        self._known = now
