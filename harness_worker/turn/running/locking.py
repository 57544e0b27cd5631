"""Holding a call's lock while its body runs: waiting for it within the call's time, and releasing it at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from tenacity import RetryCallState, Retrying, retry_if_result, wait_random_exponential

from harness_worker.errors import TransientError
from harness_worker.ports import Clock, LockName, Locks, RunningCall

log = logging.getLogger(__name__)

SHORTEST_S = 0.02
LONGEST_S = 0.25


class Withdrawn(Exception):  # noqa: N818 - reads as what it says
    """This process may no longer start the call, whose body has not been started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockKeeper:
    """Takes locks for calls.

    Args:
        locks: The locks.
        clock: This process's monotonic time.
    """

    locks: Locks
    clock: Clock

    @contextmanager
    def holding(
        self, lock: LockName, run: RunningCall, *, remaining_s: float, is_revoked: Callable[[], bool]
    ) -> Generator[int | None]:
        """Hold the lock within the context, which yields the fencing number; ``None`` if it was not free in time.

        Retries with growing pauses: a waiting call occupies a process, but nothing else.

        Args:
            lock: The lock.
            run: The call that needs it.
            remaining_s: How long the call may wait, in seconds.
            is_revoked: Whether the call must not start any more.

        Raises:
            Withdrawn: The call was revoked while it waited.
        """
        until = self.clock.monotonic() + remaining_s
        fence = self._waited(lock, run, until, is_revoked)
        if fence is None and self.clock.monotonic() < until:
            raise Withdrawn
        try:
            yield fence
        finally:
            if fence is not None:
                self._free(lock, run)

    def _waited(self, lock: LockName, run: RunningCall, until: float, is_revoked: Callable[[], bool]) -> int | None:
        def left_s() -> float:
            return max(0.0, until - self.clock.monotonic())

        def is_over(_: RetryCallState) -> bool:
            return left_s() <= 0 or is_revoked()

        def tell(state: RetryCallState) -> None:
            if state.attempt_number == 1:
                log.info("call %s of turn %s waits for the lock %s", run.call_id, run.turn_id, lock.name)

        retrying = Retrying(
            retry=retry_if_result(lambda fence: fence is None),
            wait=wait_random_exponential(multiplier=SHORTEST_S, max=LONGEST_S),
            stop=is_over,
            sleep=lambda seconds: self.clock.wait(min(seconds, left_s())),
            before_sleep=tell,
            retry_error_callback=lambda _: None,
        )
        return retrying(self._take, lock, run, left_s())

    def _take(self, lock: LockName, run: RunningCall, keep_s: float) -> int | None:
        try:
            return self.locks.take(lock, run, keep_s)
        except TransientError as error:
            log.warning("lock %s not taken, trying again: %s", lock.name, error)
            return None

    def _free(self, lock: LockName, run: RunningCall) -> None:
        try:
            if not self.locks.free(lock, run):
                log.warning("call %s of turn %s lost the lock %s while it ran", run.call_id, run.turn_id, lock.name)
        except TransientError as error:
            log.warning("lock %s not released, it will expire: %s", lock.name, error)
