"""An object of an author's code that cannot be shown."""

from __future__ import annotations

from typing import NoReturn


class Unshowable(Exception):  # noqa: N818 - a value, too
    """An object whose ``__repr__`` raises, as that of a database's object may once its session is closed."""

    def __repr__(self) -> str:
        """Raise."""
        raise ValueError("nothing to show")

    __str__ = __repr__


def raise_unshowable(_: object) -> NoReturn:
    """A rule, judge or approver that fails with such an error."""
    raise Unshowable


def return_unshowable(_: object) -> object:
    """A rule that returns such an object."""
    return Unshowable()
