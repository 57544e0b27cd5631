"""Waiting for work that may never come back: an application's judge, a blob store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, work: Callable[[], T], *, unwanted: Callable[[T], object] | None = None) -> T:
    """What ``work`` returns or raises, on a thread of its own.

    Args:
        seconds: How long to wait for it.
        work: What may take too long.
        unwanted: Given, on that thread, what ``work`` returned too late; must not raise.

    Raises:
        TimeoutError: It took longer. A thread cannot be stopped: it is left alone, and what it says is dropped.
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
        if not said.cancel():  # it has just ended, or this is an error of its own
            return said.result()
        raise TimeoutError(f"no answer within {seconds:g} s") from None
