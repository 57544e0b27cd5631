"""How both packages connect to databases: URLs, settings of connections, and when a connection must be dropped."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from sqlalchemy import URL, Engine, event, make_url
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import ArgumentError

from harness_worker.errors import ConfigError
from harness_worker.urls import masked

POSTGRES_DRIVER: Final = "postgresql+psycopg"
_POSTGRES_NAMES: Final = frozenset({"postgres", "postgresql", POSTGRES_DRIVER})
_IN_MEMORY: Final = frozenset({None, "", ":memory:"})

SILENCE_S: Final = 30
"""How long a server's host may be cut off before it is given up; the system's own limit is a quarter of an hour. Slow
statements do not count, because the host acknowledges what it receives."""
_LIVENESS: Final = {
    "tcp_user_timeout": SILENCE_S * 1000,
    "keepalives_idle": SILENCE_S // 3,
    "keepalives_interval": SILENCE_S // 6,
    "keepalives_count": 4,
}

_ANSWER_SLACK_S: Final = 1.0
"""How much later than the server's own limit of a statement its answer may arrive."""
_STATEMENT_TIMEOUT: Final = re.compile(
    r"statement[_-]timeout\s*=\s*'?([\d.]+)\s*(us|ms|s|min|h|d)?(?![\w.])", re.IGNORECASE
)
_UNITS_S: Final = {"us": 1e-6, "": 1e-3, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}

_PRAGMAS: Final = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON")
"""``FULL`` syncs each commit to the disk. With ``NORMAL``, a loss of power would undo the last ones, and a write whose
start was forgotten would run again."""

_DURABLE: Final = {"synchronous_commit": "on"}
"""The same for Postgres, whatever the server's default is: with ``off``, a crash of one of its processes is enough."""

READ_ONLY: Final = "25006"
"""Postgres's SQLSTATE for a write to a read-only server, such as one that was replaced in a failover. Nothing was
committed."""

T = TypeVar("T")


def parse_url(url: str) -> URL:
    """The URL, with the driver that both packages use for Postgres.

    Raises:
        ConfigError: It is not the URL of an SQLite file or of a Postgres database; the message shows no password.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # ValueError: a bad port
        raise ConfigError("HARNESS_DATABASE_URL is not a URL; use sqlite:///FILE or postgresql://…") from None
    if "@" in (parsed.host or ""):  # the host, which messages show, would contain a part of the password
        raise ConfigError("HARNESS_DATABASE_URL has two @; write that of its password as %40")
    if parsed.drivername in _POSTGRES_NAMES:
        return parsed.set(drivername=POSTGRES_DRIVER)
    if parsed.drivername == "sqlite" and parsed.database not in _IN_MEMORY:
        if parsed.query:
            told = "SQLite takes no options; write a ? of the file's name as %3F"
            raise ConfigError(f"HARNESS_DATABASE_URL={masked(url)}: {told}")
        return parsed
    raise ConfigError(f"HARNESS_DATABASE_URL={masked(url)}: use sqlite:///FILE or postgresql://…")


def postgres_arguments(url: URL, *, options: Mapping[str, object], **defaults: object) -> dict[str, Any]:
    """The arguments that psycopg connects with, besides the URL; what the URL itself says takes precedence.

    Args:
        url: The database.
        options: Settings of the server for these connections, by name.
        **defaults: Parameters of libpq, such as ``connect_timeout``.

    Source: https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS
    """
    ours = " ".join(f"-c {name}={value}" for name, value in {**_DURABLE, **options}.items())
    given = url.query.get("options", "")
    theirs = given if isinstance(given, str) else " ".join(given)
    wanted = {name: value for name, value in (_LIVENESS | defaults).items() if name not in url.query}
    return {**wanted, "options": f"{ours} {theirs}".strip()}  # the server uses the last one


def longest_answer_s(options: str) -> float | None:
    """How long a client waits for the answer to a statement, in seconds; ``None``: for ever.

    The server ends a statement that takes longer. A client that does not even hear of that has lost the server, though
    the connection may still be open: a proxy keeps acknowledging data after its far side is gone.

    Args:
        options: The server's settings, as :func:`postgres_arguments` returns them.
    """
    found = _STATEMENT_TIMEOUT.findall(options)
    if not found:
        return None
    number, unit = found[-1]
    limit_s = float(number) * _UNITS_S[unit.lower()]
    return limit_s + _ANSWER_SLACK_S if limit_s else None


class AnsweredConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that counts as lost if an answer does not come in time; see :func:`longest_answer_s`."""

    answer_s: float | None = None
    """The longest that a statement, a pipeline, a commit or a rollback may take, in seconds."""

    @classmethod
    def connected(cls, *arguments: Any, **options: Any) -> AnsweredConnection:  # noqa: ANN401 - the driver's own signature
        """Connect as the driver does, given what :func:`postgres_arguments` returns."""
        connection = cls.connect(*arguments, **options)
        connection.answer_s = longest_answer_s(options["options"])
        return connection

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait as the driver does, but with a time limit.

        Raises:
            OperationalError: No answer came in time, or the connection was lost; either way it is closed.
        """
        try:
            return super().wait(gen, interval, self.answer_s if timeout is None else timeout)
        except psycopg.OperationalError as error:
            if timeout is None:
                _close_if_lost(self, error)
            raise


class AsyncAnsweredConnection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """The same for asyncio."""

    answer_s: float | None = None

    @classmethod
    async def connected(cls, *arguments: Any, **options: Any) -> AsyncAnsweredConnection:  # noqa: ANN401 - the driver's own signature
        """See :meth:`AnsweredConnection.connected`."""
        connection = await cls.connect(*arguments, **options)
        connection.answer_s = longest_answer_s(options["options"])
        return connection

    async def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:  # noqa: ASYNC109 - the driver's own signature
        """See :meth:`AnsweredConnection.wait`."""
        try:
            return await super().wait(gen, interval, self.answer_s if timeout is None else timeout)
        except psycopg.OperationalError as error:
            if timeout is None:
                _close_if_lost(self, error)
            raise


def _close_if_lost(connection: psycopg.BaseConnection[Any], error: psycopg.OperationalError) -> None:
    """Close a connection to Postgres after an error that no server sent: no answer came in time, or it was lost."""
    is_harmless = isinstance(error, psycopg.errors.PipelineAborted)  # raised by the driver itself
    if error.sqlstate is None and not is_harmless:
        connection.pgconn.finish()  # not close(): a connection lost in this way must count as broken


def prepare_sqlite(connection: Any, _record: object) -> None:  # noqa: ANN401 - the driver's connection
    """Set up a new connection to SQLite, for an engine's event ``connect``."""
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def is_read_only(error: BaseException | None) -> bool:
    """Whether the server refused a write because it is read-only."""
    return getattr(error, "sqlstate", None) == READ_ONLY


def connect_anew_after(engine: Engine, is_stale: Callable[[BaseException | None], bool]) -> None:
    """Drop an engine's connections after an error of the driver for which ``is_stale`` is true.

    Connections made before a failover still answer, but would refuse every write for ever.
    """

    def drop(context: ExceptionContext) -> None:
        if is_stale(context.original_exception):
            context.is_disconnect = True

    event.listen(engine, "handle_error", drop)
