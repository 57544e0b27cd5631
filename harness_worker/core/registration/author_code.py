"""Calling the code of an application's authors, which may raise anything."""

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
    """What ``fn`` returns or raises. It may raise more than ``Exception``: some authors call ``sys.exit``.

    Raises:
        KeyboardInterrupt: Somebody pressed Ctrl-C meanwhile. Only the main thread gets to know of that; on another
            thread it is an exception of the author's.
    """
    try:
        return fn(*args, **kwargs)
    except BaseException as error:  # never raises: it is the author's code
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        return Raised(error=error)


def words_of(error: BaseException) -> str:
    """The message of an exception of an author's code; empty if its ``__str__`` raises, too."""
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - __str__ is the author's code: it may raise anything
        return ""


def shown(value: object) -> str:
    """What an author's code gave, as in ``repr``; only its type if its ``__repr__`` raises."""
    text = attempt(repr, value)
    return f"<{type(value).__name__}>" if isinstance(text, Raised) else text
