"""A local S3: the server of ``moto``, with a bucket for whoever asks for one."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Final

import httpx2

from harness_worker.adapters.embedded.parent_death import guarded
from harness_worker.adapters.embedded.ports import LOOPBACK, free_port
from harness_worker.testing.processes import running_server
from harness_worker.testing.temporary import server_directory

_REGION: Final = "us-east-1"
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3:
    """A running server.

    Args:
        url: Where it serves HTTP.
    """

    url: str

    @property
    def env(self) -> Mapping[str, str]:
        """The variables with which any client of S3 finds it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": _REGION,
        }

    def new_bucket(self) -> str:
        """The ``s3://`` URL of an empty bucket."""
        name = f"bucket-{next(_numbers)}"
        httpx2.put(f"{self.url}/{name}", trust_env=False, timeout=30).raise_for_status()
        return f"s3://{name}"


@contextmanager
def s3_service() -> Generator[S3]:
    """An S3 of its own on a free port, gone at the end; it believes any credentials."""
    with server_directory("s3") as directory:
        port = free_port()
        server = S3(url=f"http://{LOOPBACK}:{port}")
        command = guarded([sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(port)])
        log = directory / "s3.log"
        with running_server(command, log=log, is_ready=lambda: _answers(server.url), stop=signal.SIGKILL):
            yield server


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/moto-api/", trust_env=False).is_success
    except httpx2.TransportError:
        return False
