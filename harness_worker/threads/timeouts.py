"""Time limits for calls that may never return, such as those of a judge or of a blob store."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from time import monotonic
from typing import Final, TypeVar

from harness_worker.errors import TransientError

log = logging.getLogger(__name__)

MOST_OVERDUE: Final = 4
"""How many calls of one name may be overdue before no more of them are started."""

T = TypeVar("T")


def within(seconds: float, work: Callable[[], T], *, unwanted: Callable[[T], object] | None = None) -> T:
    """What ``work`` returns or raises, on a thread of its own.

    Args:
        seconds: How long to wait for it.
        work: The function that may take too long.
        unwanted: Called on that thread with what ``work`` returned too late; must not raise.

    Raises:
        TimeoutError: It took longer. A thread cannot be stopped, so it is left alone and its result is dropped.
    """
    said: Future[T] = Future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - raised again for the waiter
            with suppress(InvalidStateError):  # nobody waits
                said.set_exception(error)
            return
        try:
            said.set_result(result)
        except InvalidStateError:  # nobody waits
            if unwanted is not None:
                unwanted(result)

    threading.Thread(target=run, name="within", daemon=True).start()
    try:
        return said.result(seconds)
    except TimeoutError:
        if not said.cancel():  # it has just ended, or raised this itself
            return said.result()
        raise TimeoutError(f"no answer within {seconds:g} s") from None


class OverdueCalls:
    """Counts calls that run past their time, by name, and starts no more of a name that has too many of them.

    Each such call holds a thread until it returns, if ever: a judge that always hangs would use up all that there are.
    Threads that begin calls at the same moment may start a few more, as nothing is locked: a lock might stay so after
    an error.

    Args:
        most: How many calls of one name may be overdue before no more are started.
    """

    def __init__(self, most: int = MOST_OVERDUE) -> None:
        self._most = most
        self._due_at: defaultdict[str, dict[object, float]] = defaultdict(dict)
        self._refused: set[str] = set()

    def within(self, seconds: float, work: Callable[[], T], *, name: str) -> T:
        """What ``work`` returns or raises, on a thread of its own.

        Args:
            seconds: How long to wait for it.
            work: The function that may take too long.
            name: The name under which the call is counted, such as ``judge brief``.

        Raises:
            TimeoutError: It took longer.
            TransientError: Too many earlier calls of that name are overdue; this one was not started.
        """
        call = self._begin(name, seconds)

        def counted() -> T:
            try:
                return work()
            finally:
                self._end(name, call)

        try:
            return within(seconds, counted)
        except (RuntimeError, MemoryError):  # possibly no thread could be started
            self._end(name, call)
            raise

    def _begin(self, name: str, seconds: float) -> object:
        call, now = object(), monotonic()
        overdue = sum(due_at <= now for due_at in self._due_at[name].copy().values())
        if overdue < self._most:
            self._due_at[name][call] = now + seconds
            self._refused.discard(name)
            return call
        is_known = name in self._refused
        self._refused.add(name)
        refused = f"{overdue} earlier calls of {name} have not returned"
        if not is_known:
            log.error("%s, and each holds a thread: no more are started until one returns", refused)
        raise TransientError(refused, retry_after_s=seconds)

    def _end(self, name: str, call: object) -> None:
        self._due_at[name].pop(call, None)
