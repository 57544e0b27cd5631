"""Checks of the database (reachable, of the right kind, migrated), and the catalogue in it."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, select, text

from harness_worker.adapters.sql.engine import Timeouts, make_engine, reading
from harness_worker.adapters.sql.failures import translated
from harness_worker.adapters.sql.migrate import current, head, knows
from harness_worker.entrypoints.doctor.finding import Finding, ok, warning, wrong
from harness_worker.entrypoints.journal import has_file
from harness_worker.errors import HarnessError, TransientError
from harness_worker.schema import agents, db_now
from harness_worker.urls import masked

LEAST_POSTGRES: Final = 13
MEND_POOLER: Final = "give HARNESS_DATABASE_URL the address of Postgres itself, not of a pooler such as PgBouncer"
_BRIEF: Final = Timeouts(statement_s=6.0, idle_s=3.0, lock_s=3.0, checkout_s=3.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTool:
    """A tool in the catalogue: its name, and its queue if the version that published it recorded that."""

    name: str
    queue: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedAgent:
    """An agent in the catalogue: its name, the app that published it, its tools."""

    name: str
    app: str
    tools: tuple[PublishedTool, ...]


@contextmanager
def connected(url: str, *, writes: bool = False) -> Generator[Connection]:
    """A connection for a short check; if it ``writes``, it waits for SQLite's write lock.

    Raises:
        HarnessError: The database does not answer, or the URL is invalid.
    """
    if not has_file(url):
        raise TransientError(f"there is no database at {masked(url)}")
    engine = make_engine(url, timeouts=_BRIEF, pool_size=1)
    try:
        with translated(engine.url), (engine if writes else reading(engine)).connect() as connection:
            yield connection
    finally:
        engine.dispose()


def check_database(url: str, home_option: str) -> Iterator[Finding]:
    """Check that the database answers, its kind, that it takes writes, and that it has this version's tables.

    Args:
        url: The database.
        home_option: The option by which another command finds the same home.

    Raises:
        HarnessError: It does not answer, or the URL is invalid.
    """
    with connected(url) as connection:
        is_postgres = connection.dialect.name == "postgresql"
        if is_postgres:
            yield judge_postgres(connection.execute(text("SHOW server_version")).scalar_one(), url)
            yield from _postgres_taking(connection)
            yield from _postgres_settings(connection)
        else:
            yield _sqlite(connection, url)
        has, wants = current(connection), head()
    if not is_postgres:
        yield from _sqlite_taking(url)
    if has == wants:
        yield ok("tables", f"at revision {has}, this version's")
    elif has is None or knows(has):
        yield wrong(
            "tables", f"at revision {has or 'none'}; this version wants {wants}", f"run `harness migrate{home_option}`"
        )
    else:
        said = f"at revision {has}, newer than this version of the harness, which knows {wants} at most"
        yield warning("tables", said, f"it works on, as in the midst of an upgrade; install a version that knows {has}")


def database_time(url: str) -> float:
    """The database's clock, in seconds since the epoch."""
    with connected(url) as connection:
        return float(connection.execute(select(db_now())).scalar_one())


def catalogue(url: str) -> list[PublishedAgent]:
    """The published agents, by name."""
    with connected(url) as connection:
        rows = connection.execute(select(agents.c.name, agents.c.app, agents.c.tools).order_by(agents.c.name)).all()
    return [PublishedAgent(name=name, app=app, tools=_tools(tools)) for name, app, tools in rows]


def _tools(tools: Any) -> tuple[PublishedTool, ...]:  # noqa: ANN401 - a JSON column
    """The tools that tool workers serve; agents used as tools are served by coordinators."""
    return tuple(PublishedTool(name=tool["name"], queue=tool.get("queue")) for tool in tools if "agent" not in tool)


def judge_postgres(version: str, url: str) -> Finding:
    """The finding about a server, given its own word for its version: ``17.5 (Debian 17.5-1)``, ``18beta1``."""
    said = f"Postgres {version} at {masked(url)}"
    if int(re.split(r"\D", version, maxsplit=1)[0]) >= LEAST_POSTGRES:
        return ok("database", said)
    return wrong("database", said, f"use Postgres {LEAST_POSTGRES} or newer")


def _sqlite(connection: Connection, url: str) -> Finding:
    version = connection.execute(text("SELECT sqlite_version()")).scalar_one()
    journal = connection.execute(text("PRAGMA journal_mode")).scalar_one()
    said = f"SQLite {version} at {masked(url)}"
    if journal == "wal":
        return ok("database", f"{said}, write-ahead log on")
    mend = "put it on a local file system: shared ones allow no write-ahead log, and readers block writers"
    return warning("database", f"{said}, journal mode {journal}", mend)


def _postgres_taking(connection: Connection) -> Iterator[Finding]:
    if connection.execute(text("SHOW transaction_read_only")).scalar_one() == "on":
        yield wrong("database", "takes no writes: it is a replica, or read-only", "name one that does")


def _postgres_settings(connection: Connection) -> Iterator[Finding]:
    """Find a pooler that drops the settings of its clients: it may also mix up their prepared statements."""
    limit = str(connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one())
    if limit == "0":
        said = "never ends the transaction of a process that hangs (idle_in_transaction_session_timeout is 0)"
        yield wrong("database", said, MEND_POOLER)


def _sqlite_taking(url: str) -> Iterator[Finding]:
    """Commit a number that nobody reads, unchanged; that needs the write lock and room on the disk, like any commit."""
    try:
        with connected(url, writes=True) as connection:
            number = connection.execute(text("PRAGMA user_version")).scalar_one()
            connection.execute(text(f"PRAGMA user_version = {number}"))
            connection.commit()
    except HarnessError as error:
        mend = "end what holds its write lock (a shell, a backup), make file and folder writable, or make room for it"
        yield wrong("database", f"takes no writes: {error}", mend)
