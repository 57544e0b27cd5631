"""What a database's errors mean: try again at once, try again later, correct the setup, or a bug."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from harness_worker.databases import is_read_only
from harness_worker.errors import ConfigError, InvariantError, TransientError, UnmigratedError
from harness_worker.urls import masked

_AGAIN_STATES: Final = frozenset({"40001", "40P01", "55P03", "23505"})
"""Postgres: serialization failure, deadlock, lock not available; or a row that somebody else inserted at the same time,
which the repeat finds."""

_GONE_STATES: Final = frozenset({"57P01", "57P02", "57P03", "25P03", "25P04"})
"""Postgres: shut down by the administrator, crashed, not up yet; or the transaction was idle or ran for too long."""

_TROUBLE_STATE: Final = "XX000"
"""Postgres: an internal error, such as with a table that was altered at the same moment."""

_AGAIN_WORDS: Final = ("database is locked", "database table is locked", "database schema is locked")
_NO_DATABASE: Final = "file is not a database"
_MISSING_WORDS: Final = ("no such table", "no such column", "UndefinedTable", "UndefinedColumn")


def is_stale(error: BaseException | None) -> bool:
    """Whether the connection is no longer usable: Postgres ended it, or another server has taken over."""
    return is_gone(error) or is_read_only(error)


def is_gone(error: BaseException | None) -> bool:
    """Whether Postgres ended the connection with this error, which the driver may not have noticed yet."""
    return getattr(error, "sqlstate", None) in _GONE_STATES


def is_repeatable(error: BaseException) -> bool:
    """Whether the same transaction, of which nothing was committed, is likely to succeed if repeated at once.

    That includes a dead connection: the pool has dropped all connections as old, so the next one is new.
    """
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated or is_stale(error.orig):
        return True
    return getattr(error.orig, "sqlstate", None) in _AGAIN_STATES or _says(error, _AGAIN_WORDS)


@contextmanager
def translated(url: URL) -> Generator[None]:
    """Translate SQLAlchemy's errors into the harness's; passwords are masked.

    Raises:
        TransientError: The database did not answer in time, or had an internal error.
        ConfigError: The database was never migrated, or by an older version; or the file is none.
        InvariantError: The database refused a statement.
    """
    try:
        yield
    except SQLAlchemyError as error:
        raise _meaning(error, masked(str(url))) from error


def _meaning(error: SQLAlchemyError, where: str) -> TransientError | ConfigError | InvariantError:
    said = first_line(error)
    if isinstance(error, DBAPIError) and _says(error, _MISSING_WORDS):
        return UnmigratedError(f"the database {where} lacks tables of this version ({said})")
    if _NO_DATABASE in said:
        return ConfigError(f"{where}: {said}; name another one in HARNESS_DATABASE_URL")
    if isinstance(error, PoolTimeout | OperationalError | InterfaceError) or _is_lost(error):
        return TransientError(f"the database {where} did not answer: {said}")
    if isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) == _TROUBLE_STATE:
        return TransientError(f"the database {where} had an internal error: {said}")
    return InvariantError(f"the database {where} refused a statement: {said}")


def _is_lost(error: SQLAlchemyError) -> bool:
    return isinstance(error, DBAPIError) and error.connection_invalidated


def _says(error: DBAPIError, words: tuple[str, ...]) -> bool:
    text = f"{type(error.orig).__name__}: {error.orig}"
    return any(word in text for word in words)


def first_line(error: SQLAlchemyError) -> str:
    """What the database, or SQLAlchemy itself, says, without its hints and details."""
    text = str(error.orig if isinstance(error, DBAPIError) else error).strip()
    return text.splitlines()[0] if text else type(error).__name__
