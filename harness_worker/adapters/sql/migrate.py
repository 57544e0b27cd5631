"""Brings a database to the tables of this version (Alembic, run from the package itself)."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg.errors import LockNotAvailable
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from harness_worker.adapters.sql.engine import Timeouts, make_engine
from harness_worker.adapters.sql.failures import translated
from harness_worker.databases import parse_url
from harness_worker.errors import ConfigError, InvariantError, TransientError
from harness_worker.urls import masked

_SCRIPTS: Final = str(Path(__file__).with_name("migrations"))
_LOCK: Final = 0x6861726E657373  # "harness": the key of the advisory lock for migrations
_PATIENT: Final = Timeouts(statement_s=600.0, idle_s=600.0, lock_s=300.0)

LONGEST_LOCK_MS: Final = 2_000
"""How long to wait for a table that somebody uses (Postgres), in milliseconds. All who want that table meanwhile, such
as heartbeats, wait behind the migration."""


def head() -> str:
    """The revision of this version's tables."""
    revision = _scripts().get_current_head()
    if revision is None:
        raise InvariantError("the package has no migrations")
    return revision


def current(connection: Connection) -> str | None:
    """The revision of the database's tables; ``None`` if it was never migrated."""
    return MigrationContext.configure(connection).get_current_revision()


def knows(revision: str) -> bool:
    """Whether this version has the revision; if not, a newer version made it."""
    return revision in {script.revision for script in _scripts().walk_revisions()}


def upgrade(url: str) -> tuple[str | None, str]:
    """Bring the database to :func:`head` in one transaction; processes that do so at once wait for each other.

    A missing SQLite file is created, readable only by this user.

    Returns:
        The database's revision before and after.

    Raises:
        TransientError: The database did not answer, or a transaction that lasts, such as a backup, uses a table that
            must change.
        ConfigError: The database is newer than this version, or ``url`` is not a valid URL.
    """
    _make_room(url)
    with _connected(url) as connection:
        _wait_for_others(connection)
        before = current(connection)
        _check_known(before, connection.engine)
        with _short_locks(connection):
            command.upgrade(_config(connection), "head")
        connection.commit()
    return before, head()


def _check_known(revision: str | None, engine: Engine) -> None:
    if revision is None or knows(revision):
        return
    where = masked(str(engine.url))
    raise ConfigError(
        f"the database {where} is at revision {revision}, newer than this version of the harness, which knows "
        f"{head()} at most: install the newer version, or use another database"
    )


def _make_room(url: str) -> None:
    parsed = parse_url(url)
    if parsed.drivername != "sqlite" or parsed.database is None:
        return
    file = Path(parsed.database)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the database {masked(url)}: cannot make {file.parent}: {error.strerror}") from error
    with suppress(OSError):  # SQLite explains better why it cannot be opened
        file.touch(mode=0o600)  # SQLite gives the files beside it the same mode


@contextmanager
def _connected(url: str) -> Generator[Connection]:
    engine = make_engine(url, timeouts=_PATIENT, pool_size=1)
    try:
        with translated(engine.url), engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def _wait_for_others(connection: Connection) -> None:
    # On SQLite, BEGIN IMMEDIATE, with which every transaction here starts, is such a lock.
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


@contextmanager
def _short_locks(connection: Connection) -> Generator[None]:
    """Within the context, a table that is in use is not waited for longer than ``LONGEST_LOCK_MS``."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = {LONGEST_LOCK_MS}"))
    try:
        yield
    except OperationalError as error:
        if not isinstance(error.orig, LockNotAvailable):
            raise
        where = masked(str(connection.engine.url))
        told = f"a transaction that lasts, such as a backup, uses the tables of {where}: try again when it has ended"
        raise TransientError(told) from error


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", _SCRIPTS.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())
