"""Errors of the database that are no bugs: it does not answer, is not migrated, or takes no writes."""

from __future__ import annotations

import logging
from typing import Final

from sqlalchemy.exc import InterfaceError, InternalError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from api_gateway.logs import in_a_line
from api_gateway.problems.documents import Problem
from harness_worker.databases import READ_ONLY, is_read_only

UNREACHABLE: Final = (OperationalError, InterfaceError, PoolTimeout, ProgrammingError, InternalError)
"""What SQLAlchemy raises when the database does not answer or is not migrated; the last two only sometimes."""

AFTER_RUSH_S: Final = 5
"""Retry-After, in seconds, when the connection pool is exhausted."""

TAKES_NO_WRITES: Final = "the database takes no writes: it is a replica, or read-only; see HARNESS_DATABASE_URL"
NO_BUGS: Final = frozenset({"42P01", "25P03", "25P04", "XX000", READ_ONLY})
"""Postgres' SQLSTATEs of operational trouble, not bugs: tables missing, transaction idle or too long, an error of its
own, server read-only; those of the worker's ``adapters/sql/failures.py`` that SQLAlchemy calls internal or programming
errors."""
_log = logging.getLogger(__name__)


def takes_no_writes(error: Exception) -> bool:
    """Whether SQLAlchemy says with it that the server refused a write because it only reads."""
    return is_read_only(getattr(error, "orig", None))


def no_database(error: Exception) -> Problem:
    """503 for one of ``UNREACHABLE``, which is logged; raises it if it is a bug."""
    if isinstance(error, ProgrammingError | InternalError) and getattr(error.orig, "sqlstate", None) not in NO_BUGS:
        raise error
    if isinstance(error, PoolTimeout):
        _log.warning("too many requests at once wait for a connection to the database")
        detail = "more requests at once than this gateway can work on: try again in some seconds"
        return Problem("not_ready", detail, headers={"Retry-After": str(AFTER_RUSH_S)})
    refused = takes_no_writes(error)
    _log.warning("the database %s: %s", "takes no writes" if refused else "does not answer", in_a_line(error))
    silent = "the database does not answer or is not migrated; try again soon, and see /readyz"
    detail = TAKES_NO_WRITES if refused else silent
    return Problem("not_ready", detail, headers={"Retry-After": "1"}, extra={"missing": ["database"]})
