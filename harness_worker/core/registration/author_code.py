"""Calling what an application's authors wrote: it may raise anything, and none of that may get past its caller."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """What an author's function raised instead of returning."""

    error: BaseException


def attempt(fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Raised:
    """What ``fn`` returns, or what it raises, which need be no ``Exception``: authors call ``sys.exit``.

    Raises:
        KeyboardInterrupt: Somebody pressed Ctrl-C meanwhile, which only the main thread is told of: on another thread
            it is the author's own.
    """
    try:
        return fn(*args, **kwargs)
    except BaseException as error:  # never raises: it is the author's code
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        return Raised(error=error)


def words_of(error: BaseException) -> str:
    """What an exception of an author's code says; nothing, if its ``__str__`` raises too."""
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - __str__ is the author's code: it may raise anything
        return ""
