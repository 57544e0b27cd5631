"""Processes many items, several at once, in daemon threads, which do not keep a process from ending."""

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
    """Is told of progress, always on the thread that called :func:`work_through`."""

    def found(self, item: Told_contra, found: Found_contra, /) -> None:
        """One more item is done."""
        ...

    def tick(self) -> None:
        """Time has passed; about once a second."""
        ...


def work_through(
    items: Sequence[T], work: Callable[[T], R], watcher: Watcher[T, R], *, concurrency: int, name: str
) -> list[R]:
    """What ``work`` returns of each item, in their order; the first error, or a Ctrl-C, ends it at once.

    What is under way then is waited for by nobody, and nothing more is begun: a pool's threads are joined at exit, and
    one that waits for an answer would keep a Ctrl-C for as long.

    Args:
        items: What to work.
        work: Works one, in any thread.
        watcher: Told of each as it comes.
        concurrency: How many are under way at once.
        name: What the threads are called.
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
    """Take one item after the other until none is left."""
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
