"""A real RabbitMQ: Debian's, started by hand, with a virtual host for whoever asks for one."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from kombu import Connection
from kombu.exceptions import OperationalError

from harness_worker.adapters.embedded.parent_death import guarded
from harness_worker.adapters.embedded.ports import LOOPBACK, free_port
from harness_worker.testing.processes import running_server
from harness_worker.testing.temporary import server_directory
from tests.debian import debian_program

_PROGRAMS: Final = Path("/usr/lib/rabbitmq/bin")
"""Debian's own scripts in /usr/sbin become another user first, who may not read what a test wrote."""
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitMQ:
    """A running server.

    Args:
        port: Where it listens, on the loopback.
        env: What its command line tool needs.
    """

    port: int
    env: Mapping[str, str]

    def new_broker(self) -> str:
        """The ``amqp://`` URL of an empty virtual host."""
        name = f"test{next(_numbers)}"
        self._control("add_vhost", name)
        self._control("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
        return _url(self.port, name)

    def _control(self, *arguments: str) -> None:
        command = [str(_PROGRAMS / "rabbitmqctl"), *arguments]
        subprocess.run(command, env=dict(self.env), capture_output=True, check=True, timeout=60)


@contextmanager
def rabbitmq_service() -> Generator[RabbitMQ]:
    """A RabbitMQ of its own on free ports, gone at the end.

    Raises:
        OSError: It is not installed, and cannot be.
    """
    debian_program("rabbitmq-server", "rabbitmq-server")
    with server_directory("rabbitmq") as directory:
        port = free_port()
        server = RabbitMQ(port=port, env=_environment(directory, port))
        # Erlang leaves dumps in its current directory if it is stopped in the middle of something
        program = ["env", f"--chdir={directory}", "-i", *(f"{name}={value}" for name, value in server.env.items())]
        command = guarded([*program, str(_PROGRAMS / "rabbitmq-server")])
        log = directory / "rabbitmq.log"
        try:
            with running_server(command, log=log, is_ready=lambda: _accepts(_url(port, "")), stop=signal.SIGTERM):
                yield server
        finally:
            subprocess.run(["epmd", "-kill"], env=dict(server.env), capture_output=True, check=False)


def _environment(directory: Path, port: int) -> dict[str, str]:
    (directory / "plugins").write_text("[].\n")
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),  # of the cookie that lets the command line tool in
        "ERL_EPMD_ADDRESS": LOOPBACK,
        "ERL_EPMD_PORT": str(free_port()),
        "RABBITMQ_CONFIG_FILE": str(directory / "none"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_NODENAME": f"test{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
        "RABBITMQ_NODE_PORT": str(port),
    }


def _url(port: int, virtual_host: str) -> str:
    return f"amqp://guest:guest@{LOOPBACK}:{port}/{virtual_host or '/'}"


def _accepts(url: str) -> bool:
    try:
        with Connection(url, connect_timeout=2) as connection:
            connection.connect()
    except (OSError, OperationalError):
        return False
    return True
