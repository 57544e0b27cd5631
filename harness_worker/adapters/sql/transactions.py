"""Runs a transaction, and repeats it if it failed before its commit, but never if it failed during the commit."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from tenacity import Retrying, retry_if_exception, stop_after_attempt, stop_after_delay, wait_random_exponential

from harness_worker.adapters.sql.engine import reading
from harness_worker.adapters.sql.failures import first_line, is_gone, is_repeatable, is_stale, translated
from harness_worker.adapters.sql.pipeline import Write, execute, pipelined
from harness_worker.errors import TransientError
from harness_worker.urls import masked

T = TypeVar("T")
W = TypeVar("W", bound=Callable[..., Any])

RETRIES = 5
"""How many tries follow the first one; the first of them comes at once."""

LONGEST_S = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionResult(Generic[T]):
    """What a transaction results in: the value for its caller, and what is still to be written."""

    value: T
    writes: Sequence[Write] = ()


def write(engine: Engine, work: Callable[[Connection], TransactionResult[T]], *, is_patient: bool = True) -> T:
    """Run ``work``, then execute the writes that it returns, if possible in one round trip, and commit.

    All of it is repeated, with a short growing pause, after a deadlock, a lock that was not granted, or a dead
    connection; without ``is_patient`` only once, at once. An exception that ``work`` raises rolls back and propagates.

    Raises:
        TransientError: The database did not answer. If that happened during the commit, it may have been made:
            a caller that repeats the work must find out from what it reads.
    """
    return _repeated(engine, _commit, work, is_patient=is_patient)


def write_all(engine: Engine, writes: Sequence[Write], *, is_patient: bool = True) -> None:
    """Execute the writes and commit; repeated like :func:`write`.

    Raises:
        TransientError: As there.
    """
    write(engine, lambda _: TransactionResult(value=None, writes=writes), is_patient=is_patient)


def read(engine: Engine, work: Callable[[Connection], T]) -> T:
    """Run ``work``, which only reads, on the engine's view for that; repeated like :func:`write`.

    Raises:
        TransientError: The database did not answer.
    """
    return _repeated(reading(engine), _look, work)


@contextmanager
def committing(engine: Engine) -> Generator[None]:
    """A context in which a commit is made: if the database is lost meanwhile, nobody knows whether it was.

    Raises:
        TransientError: The database was lost.
    """
    try:
        yield
    except DBAPIError as error:
        if _was_refused(error):
            raise
        shown = masked(str(engine.url))
        doubt = f"the database {shown} was lost during a commit, which may have been made: {first_line(error)}"
        raise TransientError(doubt) from error


def _repeated(engine: Engine, once: Callable[[Engine, W], T], work: W, *, is_patient: bool = True) -> T:
    with translated(engine.url):
        try:
            return once(engine, work)
        except SQLAlchemyError as error:
            if not is_repeatable(error):
                raise
        return _patiently()(once, engine, work) if is_patient else once(engine, work)


def _patiently() -> Retrying:
    return Retrying(
        retry=retry_if_exception(is_repeatable),
        stop=stop_after_attempt(RETRIES) | stop_after_delay(LONGEST_S),
        wait=wait_random_exponential(multiplier=0.01, max=0.3),
        reraise=True,
    )


def _look(engine: Engine, work: Callable[[Connection], T]) -> T:
    with engine.connect() as connection:
        return work(connection)


def _commit(engine: Engine, work: Callable[[Connection], TransactionResult[T]]) -> T:
    with engine.connect() as connection, connection.begin() as transaction:
        result = work(connection)
        is_made = False
        try:
            with pipelined(connection):
                execute(connection, result.writes)
                with committing(engine):
                    transaction.commit()
                is_made = True
        except DBAPIError:
            if not is_made:  # else the connection was lost after the commit was confirmed, which stands
                raise
        return result.value


def _was_refused(error: DBAPIError) -> bool:
    """Whether the database itself said that it did not commit: a pipelined write or a check at commit failed."""
    answered = getattr(error.orig, "sqlstate", None) is not None
    return answered and not is_gone(error.orig) and (is_stale(error.orig) or not error.connection_invalidated)
