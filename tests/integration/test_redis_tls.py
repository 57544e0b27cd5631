"""A Redis that accepts only TLS, with a URL as redis-py has it, which does not say whether to check certificates."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from harness_worker.adapters.celery.broker import reach_broker
from harness_worker.adapters.embedded.ports import LOOPBACK
from harness_worker.config import load_settings
from harness_worker.errors import TransientError
from harness_worker.testing.waiting import wait_until
from tests.integration.certificates import write_certificate
from tests.stacks import harness_up


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while some := await reader.read(65_536):
            writer.write(some)
            await writer.drain()
    writer.transport.abort()


async def _proxy(url: str, certificate: Path, listening: Future[tuple[int, Callable[[], None]]]) -> None:
    behind = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(behind.hostname, behind.port)
        try:
            await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))
        finally:
            back.transport.abort()
            writer.transport.abort()

    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    async with await asyncio.start_server(serve, LOOPBACK, 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        listening.set_result((port, lambda: loop.call_soon_threadsafe(stop.set) and None))
        await stop.wait()


@contextmanager
def _with_tls(url: str, certificate: Path) -> Generator[int]:
    """A port of ``localhost`` that forwards TLS connections to the server of ``url``."""
    listening: Future[tuple[int, Callable[[], None]]] = Future()
    thread = Thread(target=lambda: asyncio.run(_proxy(url, certificate, listening)))
    thread.start()
    port, stop = listening.result(timeout=30)
    try:
        yield port
    finally:
        stop()
        thread.join()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of ``localhost`` that its owner has signed."""
    return write_certificate(tmp_path, "localhost")


def test_turn_runs_on_a_redis_behind_tls(tmp_path: Path, redis_url: str, certificate: Path) -> None:
    """The gate, live events, the broker and chords all use TLS."""
    with _with_tls(redis_url, certificate) as port:
        env = {"HARNESS_REDIS_URL": f"rediss://localhost:{port}/0?ssl_ca_certs={certificate}"}
        with harness_up(tmp_path / "home", "--app", "tests.apps.w1:registry", env=env) as up:
            with httpx2.Client(base_url=up.info().gateway_url, timeout=30, trust_env=False) as gateway:
                asked = {"agent": "w1", "input": "go"}
                turn_id = gateway.post("/v1/turns", json=asked).json()["id"]

                def ended() -> dict[str, Any] | None:
                    turn = gateway.get(f"/v1/turns/{turn_id}").json()
                    return turn if turn["finished_at"] else None

                turn = wait_until(ended, "the turn to end", 60)
            assert turn["status"] == "completed", turn


def test_certificate_that_nobody_vouches_for_is_refused(redis_url: str, certificate: Path) -> None:
    """By default kombu would send the password to any server that answers."""
    with _with_tls(redis_url, certificate) as port:
        broker = load_settings(broker_url=f"rediss://localhost:{port}/0").broker_url
        assert broker is not None
        with pytest.raises(TransientError, match="CERTIFICATE_VERIFY_FAILED"):
            reach_broker(broker, timeout_s=10)
