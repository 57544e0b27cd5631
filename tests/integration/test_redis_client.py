"""The Redis client and the gate when Redis is away, comes back, forgets its scripts, hangs, or the process forks."""

from __future__ import annotations

import json
import multiprocessing
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection

import pytest

from harness_worker.adapters.embedded.ports import free_port
from harness_worker.adapters.redis.client import RedisClient
from harness_worker.adapters.redis.counters import count
from harness_worker.adapters.redis.gate import RedisGate
from harness_worker.adapters.redis.locks import RedisLocks
from harness_worker.errors import ConfigError, TransientError
from harness_worker.ports import Gate
from harness_worker.testing.services import valkey_service
from harness_worker.testing.waiting import wait_until
from harness_worker.wire import LATE_RESULTS
from tests.contract.gate_kit import a_pass, a_run, asked, new_turn_id, opened, running

forking = multiprocessing.get_context("fork")
LONG_TTL_S = 60.0

OPERATIONS: dict[str, Callable[[Gate], object]] = {
    "raise_fence": lambda gate: gate.raise_fence("t", 1),
    "open": lambda gate: gate.open("t", 1, [a_pass()]),
    "close": lambda gate: gate.close("t", 1),
    "settle": lambda gate: gate.settle("t", 1, [asked("0.0")], close=False),
    "admit": lambda gate: gate.admit(a_run("t"), 1_000),
    "admits_write": lambda gate: gate.admits_write(a_run("t")),
    "goes_on": lambda gate: gate.goes_on(a_run("t")),
    "complete": lambda gate: gate.complete(a_run("t"), "x"),
    "beat": lambda gate: gate.beat([a_run("t")]),
    "lose": lambda gate: gate.lose(a_run("t")),
}


@pytest.fixture
def gate(client: RedisClient) -> RedisGate:
    """A gate on that client."""
    return RedisGate(client, lease_ttl_s=LONG_TTL_S)


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_gate_without_redis_is_transient(operation: Callable[[Gate], object]) -> None:
    """If nothing listens, every operation raises an error that may be retried."""
    gate = RedisGate(RedisClient(f"redis://127.0.0.1:{free_port()}/0"), lease_ttl_s=LONG_TTL_S)
    with pytest.raises(TransientError, match="redis did not answer"):
        operation(gate)


def test_heartbeat_without_calls_needs_no_redis() -> None:
    """A worker that runs nothing has nothing to report, and logs no failure, while Redis is away."""
    away = RedisClient(f"redis://127.0.0.1:{free_port()}/0")
    RedisGate(away, lease_ttl_s=LONG_TTL_S).beat([])
    RedisLocks(away, lease_ttl_s=LONG_TTL_S).beat([])


@pytest.mark.parametrize("operation", ["raise_fence", "admit", "lose"])
def test_gate_on_a_redis_that_refuses_is_transient(operation: str) -> None:
    """A Redis that lacks its replicas may soon have them again."""
    with valkey_service() as url:
        client = RedisClient(url)
        gate = RedisGate(client, lease_ttl_s=LONG_TTL_S)
        client.command("CONFIG SET", "min-replicas-to-write", 1)
        with pytest.raises(TransientError, match="redis refused: NOREPLICAS"):
            OPERATIONS[operation](gate)
        client.command("CONFIG SET", "min-replicas-to-write", 0)
        OPERATIONS[operation](gate)
        client.disconnect()


@contextmanager
def proxy_without_a_server() -> Generator[str]:
    """The URL of a proxy that accepts connections and answers with an error page."""

    def answer(taken: socket.socket) -> None:
        with taken, taken.accept()[0] as asking:
            asking.recv(65_536)
            asking.sendall(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    thread = threading.Thread(target=answer, args=(listener,))
    thread.start()
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        thread.join(30)


@contextmanager
def refused(client: RedisClient, url: str, command: str) -> Generator[RedisClient]:
    """A client of the same Redis whose user may do everything but this command."""
    client.command("ACL SETUSER", "limited", "on", "nopass", "~*", "+@all", f"-{command}")
    limited = RedisClient(url.replace("redis://", "redis://limited:x@"))
    try:
        yield limited
    finally:
        limited.disconnect()
        client.command("ACL DELUSER", "limited")


def test_beat_of_a_lock_that_redis_refuses_is_transient(client: RedisClient, valkey_url: str) -> None:
    """The caller learns that the lock is about to be lost."""
    with refused(client, valkey_url, "pexpire") as limited, pytest.raises(TransientError, match="redis refused"):
        RedisLocks(limited, lease_ttl_s=LONG_TTL_S).beat([a_run("t")])


def test_what_redis_refuses_to_count_is_logged(
    client: RedisClient, valkey_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """So is what it did not answer."""
    with refused(client, valkey_url, "hincrby") as limited:
        count(limited, LATE_RESULTS)
    assert f"{LATE_RESULTS} not counted: redis refused" in caplog.text


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_gate_on_a_hung_redis_is_transient(operation: Callable[[Gate], object]) -> None:
    """A Redis that accepts connections but never replies costs the timeout, and no worker."""
    with closing(socket.create_server(("127.0.0.1", 0))) as hung:
        client = RedisClient(f"redis://127.0.0.1:{hung.getsockname()[1]}/0", socket_timeout_s=0.1)
        with pytest.raises(TransientError, match="redis did not answer"):
            operation(RedisGate(client, lease_ttl_s=LONG_TTL_S))


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_gate_works_on_a_redis_that_forgot_the_scripts(
    operation: Callable[[Gate], object], client: RedisClient, gate: RedisGate
) -> None:
    """A restarted Redis has no scripts; each is sent again when it is needed."""
    client.command("SCRIPT FLUSH")
    operation(gate)
    client.command("DEL", "harness:{t}:gate")


def test_gate_beats_for_many_turns_on_a_redis_that_forgot_the_scripts(client: RedisClient, gate: RedisGate) -> None:
    """The batch of heartbeats sends its script again, and leaves no heartbeat out."""
    turns = [running(gate) for _ in range(3)]

    def beats() -> list[int]:
        entries = [client.command("HGET", f"harness:{{{turn_id}}}:gate", "e:0.0") for turn_id in turns]
        return [json.loads(entry)["beat"] for entry in entries]

    def all_have_beaten() -> bool:
        client.command("SCRIPT FLUSH")
        gate.beat([a_run(turn_id) for turn_id in turns])
        return all(now > then for now, then in zip(beats(), admitted, strict=True))

    admitted = beats()
    wait_until(all_have_beaten, "every run to have beaten", interval_s=0.002)


def test_client_heals_when_its_connections_are_cut(client: RedisClient, gate: RedisGate, valkey_url: str) -> None:
    """A connection that Redis has closed is noticed before it is used."""
    turn_id = opened(gate)
    other = RedisClient(valkey_url)
    assert other.command("CLIENT KILL", "ID", client.command("CLIENT ID")) == 1
    assert gate.raise_fence(turn_id, 1)
    other.disconnect()


def test_client_works_on_after_disconnect(client: RedisClient) -> None:
    """After its connections were dropped the client connects again when used."""
    before = client.command("CLIENT ID")
    client.disconnect()
    client.disconnect()
    assert client.command("CLIENT ID") > before


def _in_child(gate: RedisGate, client: RedisClient, report: Connection) -> None:
    client.disconnect()
    turn_id = running(gate)
    report.send((gate.complete(a_run(turn_id), "x"), client.command("CLIENT ID")))
    report.close()


def test_gate_survives_a_fork(client: RedisClient, gate: RedisGate) -> None:
    """A forked child uses connections of its own, and the parent's keep working."""
    parent_connection = client.command("CLIENT ID")
    mine, theirs = forking.Pipe(duplex=False)
    child = forking.Process(target=_in_child, args=(gate, client, theirs))
    child.start()
    assert mine.poll(30)
    completed, child_connection = mine.recv()
    child.join(30)
    assert completed
    assert child_connection != parent_connection
    assert client.command("CLIENT ID") == parent_connection
    assert gate.raise_fence(new_turn_id(), 1)


@pytest.mark.parametrize("url", ["nonsense", "http://127.0.0.1:1", "redis://127.0.0.1:port/0", "redis://host/0?db=x"])
def test_client_names_the_setting_of_a_bad_url(url: str) -> None:
    """A URL that cannot be one of a Redis is a configuration error."""
    with pytest.raises(ConfigError, match="HARNESS_REDIS_URL"):
        RedisClient(url).command("PING")


def test_client_names_the_setting_when_credentials_are_refused(valkey_url: str) -> None:
    """The worker's log says which setting to correct."""
    with pytest.raises(TransientError, match="HARNESS_REDIS_URL: redis refused the credentials: invalid username"):
        RedisClient(valkey_url.replace("redis://", "redis://nobody:wrong@")).command("PING")


def test_gate_whose_redis_refuses_its_password_for_a_while_is_transient() -> None:
    """While a server is being replaced, a new connection may be refused and a later one accepted."""
    with valkey_service() as url:
        admin, client = RedisClient(url), RedisClient(url)
        admin.command("CONFIG SET", "requirepass", "secret")
        gate = RedisGate(client, lease_ttl_s=LONG_TTL_S)
        with pytest.raises(TransientError, match="redis refused the credentials: Authentication"):
            gate.raise_fence("t", 1)
        admin.command("CONFIG SET", "requirepass", "")
        assert gate.raise_fence("t", 1)
        admin.disconnect()
        client.disconnect()


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_gate_on_what_is_no_redis_is_transient(operation: Callable[[Gate], object]) -> None:
    """A proxy may answer in its own protocol that the server behind it is away."""
    with proxy_without_a_server() as url:
        client = RedisClient(url)
        with pytest.raises(TransientError, match="what answered is no redis"):
            operation(RedisGate(client, lease_ttl_s=LONG_TTL_S))
        client.disconnect()
