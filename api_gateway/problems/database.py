"""Database errors that are not bugs: the database does not answer, is not migrated, or takes no writes."""

from __future__ import annotations

import logging
from typing import Final

from sqlalchemy.exc import InterfaceError, InternalError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from api_gateway.logs import in_a_line
from api_gateway.problems.documents import Problem
from harness_worker.databases import READ_ONLY, is_read_only

UNREACHABLE: Final = (OperationalError, InterfaceError, PoolTimeout, ProgrammingError, InternalError)
"""What SQLAlchemy raises when the database does not answer or is not migrated; the last two can also be bugs."""

AFTER_RUSH_S: Final = 5
"""Retry-After, in seconds, when the connection pool is exhausted."""

TAKES_NO_WRITES: Final = "the database takes no writes: it is a replica, or read-only; see HARNESS_DATABASE_URL"
NO_BUGS: Final = frozenset({"42P01", "25P03", "25P04", "XX000", READ_ONLY})
"""SQLSTATEs of Postgres that mean operational trouble, not a bug: missing tables, a transaction idle or too long, an
internal error of Postgres, a read-only server. They are those of the worker's ``adapters/sql/failures.py`` that
SQLAlchemy reports as internal or programming errors."""
_log = logging.getLogger(__name__)


def takes_no_writes(error: Exception) -> bool:
    """Whether SQLAlchemy's error means that the server refused a write because it is read-only."""
    return is_read_only(getattr(error, "orig", None))


def no_database(error: Exception) -> Problem:
    """Log one of the errors ``UNREACHABLE`` and return a 503 ``not_ready`` for it; raises it if it is a bug."""
    _log.warning("%s", trouble_of(error))
    if isinstance(error, PoolTimeout):
        detail = "more requests at once than this gateway can work on: try again in a few seconds"
        return Problem("not_ready", detail, headers={"Retry-After": str(AFTER_RUSH_S)})
    silent = "the database does not answer or is not migrated; try again soon, and see /readyz"
    detail = TAKES_NO_WRITES if takes_no_writes(error) else silent
    return Problem("not_ready", detail, headers={"Retry-After": "1"}, extra={"missing": ["database"]})


def trouble_of(error: Exception) -> str:
    """What one of the errors ``UNREACHABLE`` means, in a line for the log; raises it if it is a bug."""
    if isinstance(error, ProgrammingError | InternalError) and getattr(error.orig, "sqlstate", None) not in NO_BUGS:
        raise error
    if isinstance(error, PoolTimeout):
        return "too many requests at once wait for a connection to the database"
    what = "takes no writes" if takes_no_writes(error) else "does not answer"
    return f"the database {what}: {in_a_line(error)}"
