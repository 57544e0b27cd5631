"""Rules of an author's code that fail, in every way that they can."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from typing import Any, Final, NoReturn


class Unshowable(Exception):  # noqa: N818 - a value, too
    """An object whose ``__repr__`` raises, as that of a database's object may once its session is closed."""

    def __repr__(self) -> str:
        """Raise."""
        raise ValueError("nothing to show")

    __str__ = __repr__


def _raises(_: object) -> NoReturn:
    raise ValueError("no idea")


def _exits(_: object) -> NoReturn:
    raise SystemExit(1)


def _cancels(_: object) -> NoReturn:
    raise CancelledError


def raise_unshowable(_: object) -> NoReturn:
    """A rule, judge or approver that fails with such an error."""
    raise Unshowable


def _returns_unshowable(_: object) -> object:
    return Unshowable()


BAD_RULES: Final[tuple[Callable[[Any], object], ...]] = (
    _raises,
    _exits,
    _cancels,
    raise_unshowable,
    _returns_unshowable,
)
