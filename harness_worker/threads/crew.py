"""Processes many items, several at once, on daemon threads, which do not keep a process from exiting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, Generic, Protocol, TypeVar

TICK_S: Final = 1.0

T = TypeVar("T")
R = TypeVar("R")
Told_contra = TypeVar("Told_contra", contravariant=True)
Found_contra = TypeVar("Found_contra", contravariant=True)


class Watcher(Protocol, Generic[Told_contra, Found_contra]):
    """Is notified of progress, always on the thread that called :func:`work_through`."""

    def found(self, item: Told_contra, found: Found_contra, /) -> None:
        """One more item is done."""
        ...

    def tick(self) -> None:
        """Time has passed; about once a second."""
        ...


def work_through(
    items: Sequence[T], work: Callable[[T], R], watcher: Watcher[T, R], *, concurrency: int, name: str
) -> list[R]:
    """What ``work`` returns for each item, in their order; the first error, or Ctrl-C, ends everything at once.

    Then nobody waits for work under way, and nothing more is started. The threads of a pool would be joined at exit, so
    that one that waits for an answer would delay Ctrl-C for as long.

    Args:
        items: The items to process.
        work: Processes one item, on any thread.
        watcher: Notified of each result as it comes.
        concurrency: How many items are processed at once.
        name: The threads' name.
    """
    futures = {Future[R](): item for item in items}
    left = SimpleQueue[Future[R]]()
    for future in futures:
        left.put(future)
    try:
        for _ in range(min(concurrency, len(futures))):
            Thread(target=_work, args=(work, futures, left), name=name, daemon=True).start()
        _follow(futures, watcher)
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    return [future.result() for future in futures]


def _work(work: Callable[[T], R], items: Mapping[Future[R], T], left: SimpleQueue[Future[R]]) -> None:
    """Process one item after another until none is left."""
    while True:
        try:
            future = left.get_nowait()
        except Empty:
            return
        if future.set_running_or_notify_cancel():
            _settle(future, work, items[future])


def _settle(future: Future[R], work: Callable[[T], R], item: T) -> None:
    try:
        future.set_result(work(item))
    except BaseException as error:  # noqa: BLE001 - raised again for who waits
        future.set_exception(error)


def _follow(futures: Mapping[Future[R], T], watcher: Watcher[T, R]) -> None:
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=TICK_S, return_when=FIRST_COMPLETED)
        for future in done:
            watcher.found(futures[future], future.result())
        watcher.tick()
