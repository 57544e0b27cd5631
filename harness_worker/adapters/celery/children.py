"""What a pool process does first, and what its parent does when it is gone."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Any


def make_group_leader() -> None:
    """Let this process lead a group of its own, so that ending it ends all that its tools started."""
    os.setpgid(0, 0)


class Children:
    """Replaces pool processes that died, and ends what is left of their groups.

    Celery looks itself when a process's pipe closes, which is often a moment before the process can be waited for; the
    next look of its own is up to 5 seconds later.

    Args:
        pool: The worker's prefork pool.
    """

    def __init__(self, pool: Any) -> None:  # noqa: ANN401 - a celery.concurrency.prefork.TaskPool
        self._pool = pool
        self._known: frozenset[int] = frozenset()

    def reap(self) -> None:
        """Look at the pool, then kill the groups of those that were there last time and are gone."""
        processes = self._pool._pool  # noqa: SLF001 - Celery offers no other list
        if processes is None:  # the worker has let its pool go
            return
        self._pool.maintain_pool()
        now = frozenset(process.pid for process in processes._pool)  # noqa: SLF001 - as above
        for pid in self._known - now:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        self._known = now
