"""Many readers of live turns at one gateway process: each gets every event, and none costs much."""

from __future__ import annotations

import asyncio
import http.client
import re
import socket
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx2
import psutil
import pytest

from harness_worker.entrypoints.serving.listening import STALLED_MS, cut_stalled, listen
from harness_worker.entrypoints.serving.request_heads import TimedHeads
from harness_worker.testing.waiting import wait_until
from tests.integration.gateway_kit import Gateway, gateway_on, gateway_process

READERS: Final = 200
TURNS: Final = 10
EVENTS: Final = 30
COST_MB: Final = 0.25
"""What a reader may cost: a task, a queue and buffers."""

STALLED: Final = 8
LARGE: Final = "x" * 20_000
STALLED_COST_MB: Final = 6.0
"""What a reader who does not read may cost: a page of events."""

OPEN: Final = b": open\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A gateway that runs as operators start it, and another one in this process, with a stand-in for workers."""

    port: int
    pid: int
    hand: Gateway
    redis_port: int

    @property
    def memory_mb(self) -> float:
        """Its resident memory, in MB."""
        return psutil.Process(self.pid).memory_info().rss / 2**20

    @property
    def redis_connections(self) -> int:
        """The number of its connections to Redis."""
        ends = psutil.Process(self.pid).net_connections("tcp")
        return sum(bool(end.raddr) and end.raddr.port == self.redis_port for end in ends)

    @property
    def readers(self) -> int:
        """The number of open streams, according to its metrics."""
        text = httpx2.get(f"http://127.0.0.1:{self.port}/metrics", timeout=20).text
        (told,) = re.findall(r"^harness_sse_readers (\S+)$", text, re.MULTILINE)
        return int(float(told))

    def request(self, turn_id: str, after: int = 0) -> bytes:
        """A request for a stream; with HTTP/1.0 the answer's bytes are the stream's."""
        wanted = f"GET /v1/turns/{turn_id}/events?after={after} HTTP/1.0\r\nAccept: text/event-stream\r\n\r\n"
        return wanted.encode()


@pytest.fixture
def process(sqlite_url: str, gateway_redis: str, tmp_path: Path) -> Generator[Process]:
    """A gateway in a process of its own."""
    with (
        gateway_on(sqlite_url, gateway_redis) as hand,
        gateway_process(sqlite_url, gateway_redis, tmp_path / "log", HARNESS_LOG_LEVEL="INFO") as running,
    ):
        redis_port = urlsplit(gateway_redis).port or 0
        yield Process(port=running.port, pid=running.process.pid, hand=hand, redis_port=redis_port)


def seqs(stream: bytes) -> list[int]:
    """The ids in a stream."""
    return [int(found) for found in re.findall(rb"^id: (\d+)$", stream, re.MULTILINE)]


async def _read_all(process: Process, turns: Sequence[str]) -> tuple[list[bytes], dict[str, float]]:
    """Run and end turns while readers wait for them; returns what each reader got, and the memory used meanwhile."""
    begun = process.memory_mb
    readers = [asyncio.create_task(_read(process, turns[number % len(turns)])) for number in range(READERS)]
    await asyncio.to_thread(wait_until, lambda: process.readers == READERS, "all to read", 60)
    opened = process.memory_mb
    for step in range(EVENTS):
        for turn_id in turns:
            await asyncio.to_thread(process.hand.worker.event, turn_id, "step.completed", step=step, text="x" * 500)
    ran, connections = process.memory_mb, process.redis_connections
    for turn_id in turns:
        await asyncio.to_thread(process.hand.worker.finish, turn_id)
    told = await asyncio.wait_for(asyncio.gather(*readers), 60)
    return told, {"begun": begun, "opened": opened, "ran": ran, "connections": connections}


async def _read(process: Process, turn_id: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
    writer.write(process.request(turn_id))
    try:
        return await reader.read(-1)
    finally:
        writer.close()


@pytest.mark.acceptance
def test_readers_at_once_get_everything_for_little_memory(process: Process) -> None:
    """200 readers of ten turns get every event, over one connection to Redis and with 0.25 MB a reader."""
    turns = [process.hand.posted()["id"] for _ in range(TURNS)]
    told, seen = asyncio.run(_read_all(process, turns))
    cost = (seen["ran"] - seen["begun"]) / READERS
    memory = f"{seen['begun']:.0f} MB before, {seen['opened']:.0f} MB open, {seen['ran']:.0f} MB after {EVENTS} events"
    print(f"{READERS} readers: {memory}: {cost:.3f} MB a reader; Redis connections: {seen['connections']}")  # noqa: T201
    assert [seqs(stream) for stream in told] == [list(range(1, EVENTS + 3))] * READERS
    assert seen["connections"] == 1
    assert cost < COST_MB


def test_gateway_has_the_kernel_cut_stalled_clients() -> None:
    """Accepted connections inherit the listening socket's time limit."""
    with listen("127.0.0.1", 0) as listener:
        cut_stalled(listener)
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == STALLED_MS


def test_answers_do_not_wait_for_acknowledgements() -> None:
    """Without that, a client that keeps its connection would get each body up to 40 ms after its head."""
    with (
        listen("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_gateway_may_have_as_many_connections_as_the_system_allows(process: Process) -> None:
    """The process raises its limit of open files to what the system allows."""
    few, most = psutil.Process(process.pid).rlimit(psutil.RLIMIT_NOFILE)
    assert few == most


@pytest.mark.acceptance
def test_request_whose_head_never_ends_is_cut(process: Process) -> None:
    """A client that sends its request in time is served however long that takes, and may stay idle afterwards."""
    turn_id = process.hand.posted()["id"]
    idle = http.client.HTTPConnection("127.0.0.1", process.port)
    assert _asked(idle) == 200
    stream = socket.create_connection(("127.0.0.1", process.port), timeout=TimedHeads.head_s * 2)
    unfinished = socket.create_connection(("127.0.0.1", process.port), timeout=TimedHeads.head_s * 2)
    with stream, unfinished, closing(idle):
        stream.sendall(process.request(turn_id))
        unfinished.sendall(b"GET /v1/turns HTTP/1.1\r\nX-A: ")
        assert unfinished.recv(1) == b""
        assert _asked(idle) == 200
        process.hand.worker.finish(turn_id)
        assert seqs(_drained(stream)) == [1, 2]


def _asked(connection: http.client.HTTPConnection) -> int:
    """The status of an answer on this connection, which is opened first if need be."""
    connection.auto_open = connection.sock is None
    connection.request("GET", "/healthz")
    with connection.getresponse() as answer:
        answer.read()
        return answer.status


@pytest.mark.acceptance
@pytest.mark.timeout(180)
def test_readers_that_do_not_read_are_cut_and_can_resume(process: Process) -> None:
    """A stalled reader costs a page of events, is cut off within a minute, and gets the rest when it resumes."""
    turn_id = process.hand.posted()["id"]
    begun = process.memory_mb
    stalled = [_stall(process, turn_id) for _ in range(STALLED)]
    wait_until(lambda: process.readers == STALLED, "all to be connected", 20)
    for step in range(500):
        process.hand.worker.event(turn_id, "step.completed", step=step, text=LARGE)
    cost = (process.memory_mb - begun) / STALLED
    print(f"{STALLED} stalled readers of 10 MB: {begun:.0f} MB before, {cost:.2f} MB a reader")  # noqa: T201
    wait_until(lambda: process.readers == 0, "them to be cut", STALLED_MS / 1_000 * 3)
    assert cost < STALLED_COST_MB
    process.hand.worker.finish(turn_id)
    for each in stalled:
        had = seqs(_drained(each).rpartition(b"\n\n")[0])
        rest = asyncio.run(_resume(process, turn_id, had[-1] if had else 0))
        assert had + seqs(rest) == list(range(1, 503))


def _stall(process: Process, turn_id: str) -> socket.socket:
    """A connection that asks for a stream and then reads nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.connect(("127.0.0.1", process.port))
    client.sendall(process.request(turn_id))
    return client


def _drained(client: socket.socket) -> bytes:
    """The bytes that the kernel still has of a connection that was cut."""
    taken = b""
    with client:
        client.settimeout(5)
        try:
            while piece := client.recv(65_536):
                taken += piece
        except OSError:
            pass  # the reset behind the last byte
    return taken


async def _resume(process: Process, turn_id: str, after: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
    writer.write(process.request(turn_id, after))
    stream = await reader.read(-1)
    writer.close()
    return stream
