"""Waiting for work that may never come back: an application's judge, a blob store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, work: Callable[[], T]) -> T:
    """What ``work`` returns or raises, on a thread of its own.

    Raises:
        TimeoutError: It took longer. A thread cannot be stopped: it is left alone, and what it says is dropped.
    """
    said: Future[T] = Future()

    def run() -> None:
        try:
            said.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again for who waits
            said.set_exception(error)

    threading.Thread(target=run, name="within", daemon=True).start()
    try:
        return said.result(seconds)
    except TimeoutError:
        if said.done():
            raise
        raise TimeoutError(f"no answer within {seconds:g} s") from None
