"""The stack's database, for commands that work on it without a gateway."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine

from harness_worker.adapters.sql.engine import make_engine
from harness_worker.config import load_settings
from harness_worker.databases import parse_url
from harness_worker.entrypoints.addresses import Addresses
from harness_worker.entrypoints.stack.home import Home
from harness_worker.errors import TransientError, UnmigratedError
from harness_worker.urls import masked


@contextmanager
def open_journal(home: Path | None) -> Generator[Engine]:
    """An engine for the journal, given the value of ``--home``.

    Raises:
        ConfigError: The URL is invalid, or the database lacks tables; the message says how to make them.
        TransientError: There is no such file.
    """
    addresses = Addresses(load_settings(home=home))
    url = journal_url(addresses)
    if not has_file(url):
        raise TransientError(
            f"there is no database at {masked(url)}: name the home of a stack with --home, or a database with "
            f"HARNESS_DATABASE_URL; `harness migrate{addresses.home_option}` makes one there"
        )
    engine = make_engine(url, pool_size=1)
    try:
        yield engine
    except UnmigratedError as error:
        raise UnmigratedError(error.lacking, addresses.home_option) from error
    finally:
        engine.dispose()


def journal_url(addresses: Addresses) -> str:
    """The URL of HARNESS_DATABASE_URL, else of the stack that runs in the home, else of the home's own file."""
    return addresses.database_url or Home(addresses.settings.home).database_url


def has_file(url: str) -> bool:
    """Whether a database may exist there: SQLite would create a missing file; any other database has to be asked."""
    parsed = parse_url(url)
    return parsed.drivername != "sqlite" or Path(str(parsed.database)).exists()
