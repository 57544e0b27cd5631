"""Migrations on real databases of both kinds."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, delete, insert, inspect, select, text

from harness_worker.adapters.sql import migrate, migrations
from harness_worker.adapters.sql.engine import make_engine
from harness_worker.adapters.sql.migrate import current, head, upgrade
from harness_worker.errors import ConfigError, TransientError
from harness_worker.schema import memories, metadata, turns
from harness_worker.testing.postgres import PostgresServer

BEFORE_LASTING_MEMORIES = "0013"
WITH_VERSIONS = "0024"
"""The next revision drops a column of turns."""


@pytest.fixture
def empty_sqlite_url(tmp_path: Path) -> str:
    """A SQLite file in a directory that does not exist yet."""
    return f"sqlite:///{tmp_path}/new 100%/harness.db"


@pytest.fixture
def empty_postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A Postgres database without tables."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest) -> str:
    """A database without tables, once of each kind."""
    url: str = request.getfixturevalue(f"empty_{request.param}_url")
    return url


def upgrade_to(revision: str, connection: Connection) -> None:
    """Make the tables of an older version."""
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(str(migrations.__file__)).parent))
    command.upgrade(config, revision)


def test_upgrade_makes_the_tables_and_says_from_where_to_where(empty_url: str):
    """The first upgrade starts from nothing, and a second one changes nothing."""
    assert upgrade(empty_url) == (None, head())
    engine = make_engine(empty_url)
    with engine.connect() as connection:
        assert current(connection) == head()
    engine.dispose()
    assert upgrade(empty_url) == (head(), head())


def test_sqlite_files_are_for_their_users_eyes_only(tmp_path: Path):
    """They hold users' words, and may lie in a directory that others can enter."""
    place = tmp_path / "open"
    place.mkdir(mode=0o755)
    url = f"sqlite:///{place}/harness.db"
    upgrade(url)
    engine = make_engine(url)
    with engine.connect() as connection:
        assert current(connection) == head()
        modes = {file.name: file.stat().st_mode & 0o777 for file in place.iterdir()}
    engine.dispose()
    assert modes == dict.fromkeys(["harness.db", "harness.db-shm", "harness.db-wal"], 0o600)


def test_upgrade_leaves_no_difference_to_the_schema(empty_url: str):
    """The revisions make what ``schema.py`` declares, including types and defaults."""
    upgrade(empty_url)
    engine = make_engine(empty_url)
    with engine.connect() as connection:
        defaults = connection.dialect.name == "postgresql"  # Alembic misreads an empty default of SQLite.
        options = {"compare_type": True, "compare_server_default": defaults}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_upgrade_keeps_memories_and_lets_their_turns_go(empty_url: str):
    """Before this revision, a turn could not be removed as long as a memory came from it."""
    turn = {
        "id": "t",
        "tenant": "a",
        "session_id": "s",
        "agent": "x",
        "status": "completed",
        "input": "",
        "priority": "p",
    }
    times = {"deadline_at": 0.0, "created_at": 0.0}
    values: dict[str, Any] = {**turn, **times, "metadata": {}, "budget": {}, "used": {}, "cancel_requested": False}
    memory = {"turn_id": "t", "position": 0, "tenant": "a", "scope": "user:ann", "kind": "fact", "text": "ü"}
    if empty_url.startswith("sqlite"):
        Path(empty_url.removeprefix("sqlite:///")).parent.mkdir()
    engine = make_engine(empty_url)
    with engine.begin() as connection:
        upgrade_to(BEFORE_LASTING_MEMORIES, connection)
        connection.execute(insert(turns).values(values))
        connection.execute(insert(memories).values(**memory, created_at=1.5))
    upgrade(empty_url)
    with engine.begin() as connection:
        connection.execute(delete(turns))
        assert connection.execute(select(memories)).one() == (*memory.values(), 1.5)
    engine.dispose()


def test_upgrade_does_not_keep_a_fleet_waiting_for_a_backup(
    empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it waits for a table that a long transaction reads, everybody else would wait for that table, too."""
    monkeypatch.setattr(migrate, "LONGEST_LOCK_MS", 100)
    engine = make_engine(empty_postgres_url)
    with engine.begin() as connection:
        upgrade_to(WITH_VERSIONS, connection)
    with engine.begin() as backup:
        backup.execute(select(turns.c.id)).all()
        with pytest.raises(TransientError, match="such as a backup"):
            upgrade(empty_postgres_url)
    assert upgrade(empty_postgres_url) == (WITH_VERSIONS, head())
    engine.dispose()


def test_upgrade_by_several_processes_at_once_happens_once(empty_url: str):
    """A second process waits, and finds the upgrade done."""
    with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("spawn")) as pool:
        came_from = [before for before, _ in pool.map(upgrade, [empty_url] * 3)]
    assert sorted(came_from, key=str) == sorted([None, head(), head()], key=str)


def test_upgrade_refuses_a_newer_database(empty_url: str):
    """A database of a later version is left alone, and the message says so."""
    upgrade(empty_url)
    engine = make_engine(empty_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(ConfigError, match="revision 9999, newer than this version"):
        upgrade(empty_url)
    engine.dispose()


def test_upgrade_that_fails_leaves_nothing_behind(empty_url: str):
    """An upgrade is one transaction: if one table cannot be made, none is."""
    if empty_url.startswith("sqlite"):
        Path(empty_url.removeprefix("sqlite:///")).parent.mkdir()
    engine = make_engine(empty_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE agents (name text)"))
    with pytest.raises(Exception, match="agents"):
        upgrade(empty_url)
    assert inspect(engine).get_table_names() == ["agents"]
    engine.dispose()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://someone:s3cret@127.0.0.1:1/none", "someone:***@127.0.0.1:1/none"),
        ("postgresql://127.0.0.1:1/none?user=bob&password=s3cret", "127.0.0.1:1/none?password=***&user=bob"),
    ],
)
def test_upgrade_of_an_unreachable_database_is_transient_and_hides_the_password(url: str, shown: str):
    """The upgrade may be tried again, and the message has no password."""
    with pytest.raises(TransientError) as raised:
        upgrade(url)
    assert "s3cret" not in str(raised.value)
    assert shown in str(raised.value)
    assert "\n" not in str(raised.value)


def test_upgrade_where_no_directory_can_be_made_is_told_without_a_setting():
    """The database may be that of a home; it need not be one that a variable names."""
    where = "sqlite:////dev/null/home/harness.db"
    with pytest.raises(ConfigError, match=f"^the database {where}: cannot make /dev/null/home: Not a directory$"):
        upgrade(where)
