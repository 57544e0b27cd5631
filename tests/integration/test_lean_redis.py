"""Redis commands sent without redis-py's own way: replies are never mixed up, and lost connections never used."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

import pytest
from redis import Connection as RedisConnection
from redis import Redis
from redis.exceptions import OutOfMemoryError, ResponseError, TimeoutError  # noqa: A004 - redis-py's own

from harness_worker.lean_redis import LeanPool, LeanRedis
from harness_worker.testing.services import valkey_service
from harness_worker.testing.waiting import wait_until

# redis-py has no types for what its methods take.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

forking = multiprocessing.get_context("fork")
NAME = "lean:{test}"
BLOCKING = ("BLPOP", "lean:{test}:nothing", 6)
HASTY_S = 3.0
"""How long who waits for that waits: shorter, and still longer than a slow machine takes over any other command."""

SENDING: dict[str, Callable[[LeanRedis], object]] = {
    "execute_command": lambda redis: redis.execute_command("SET", NAME, "x"),
    "batch": lambda redis: redis.batch([("SET", NAME, "x"), ("GET", NAME)]),
    "transact": lambda redis: redis.transact(("SET", NAME, "x"), ("EXPIRE", NAME, 60)),
}
INTERRUPTED: dict[str, Callable[[LeanRedis], object]] = {
    "execute_command": lambda redis: redis.execute_command(*BLOCKING),
    "batch": lambda redis: redis.batch([BLOCKING]),
}
every_way = pytest.mark.parametrize("send", SENDING.values(), ids=SENDING)


@pytest.fixture
def redis(valkey_url: str) -> Iterator[LeanRedis]:
    """A lean client of the session's Valkey, with a short timeout."""
    pool = LeanPool.from_url(valkey_url, decode_responses=True, socket_timeout=HASTY_S)
    yield LeanRedis(connection_pool=pool)
    pool.disconnect()


@pytest.fixture
def other(valkey_url: str) -> Iterator[Redis]:
    """A client of redis-py, to look with."""
    with Redis.from_url(valkey_url, decode_responses=True) as other:
        yield other
        other.delete(NAME)


def _number(redis: Redis) -> Any:  # noqa: ANN401 - redis-py has no types for replies
    return redis.execute_command("CLIENT ID")


@every_way
def test_connection_that_the_server_closed_is_not_used(
    send: Callable[[LeanRedis], object], redis: LeanRedis, other: Redis
) -> None:
    """A connection that was closed while idle is noticed before a command is sent on it."""
    assert other.execute_command("CLIENT KILL", "ID", _number(redis)) == 1
    send(redis)
    assert other.get(NAME) == "x"


@every_way
def test_reply_that_comes_late_is_nobodys(send: Callable[[LeanRedis], object], redis: LeanRedis, other: Redis) -> None:
    """A command that times out closes its connection, so that no later command reads its reply."""
    before = _number(redis)
    with pytest.raises(TimeoutError):
        redis.execute_command(*BLOCKING)
    send(redis)
    assert _number(redis) > before
    assert redis.execute_command("GET", NAME) == other.get(NAME) == "x"


def test_reply_that_was_never_read_is_nobodys(redis: LeanRedis) -> None:
    """After an interruption between a command and its reply, the connection is made anew."""
    pool = redis.connection_pool
    connection = pool.get_connection()
    connection.send_command("SET", NAME, "unread")
    assert connection.can_read(timeout=30)
    pool.release(connection)
    assert redis.execute_command("ECHO", "mine") == "mine"


class _Interrupted(RedisConnection):
    """A connection whose user is interrupted once a blocking command was sent."""

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: ANN401 - redis-py's own
        super().send_packed_command(command, check_health)
        if b"BLPOP" in b"".join(command):
            raise KeyboardInterrupt


@pytest.mark.parametrize("send", INTERRUPTED.values(), ids=INTERRUPTED)
def test_interrupted_command_keeps_its_reply(send: Callable[[LeanRedis], object], valkey_url: str) -> None:
    """An interrupted command closes its connection, so that the next command does not read its reply."""
    pool = LeanPool.from_url(valkey_url, decode_responses=True, connection_class=_Interrupted)
    interrupted = LeanRedis(connection_pool=pool)
    with pytest.raises(KeyboardInterrupt):
        send(interrupted)
    assert interrupted.execute_command("ECHO", "mine") == "mine"
    pool.disconnect()


@every_way
def test_redis_that_hangs_costs_the_timeout(send: Callable[[LeanRedis], object], redis: LeanRedis) -> None:
    """Whatever was sent, no reply in time is an error, and the client works again when Redis does."""
    with valkey_service() as url, Redis.from_url(url) as looking:
        hung = LeanRedis(connection_pool=LeanPool.from_url(url, socket_timeout=1.0))
        wait_until(lambda: _answers(hung), "a connection")
        looking.execute_command("CLIENT PAUSE", 60_000, "ALL")
        with pytest.raises(TimeoutError):
            send(hung)
        hung.connection_pool.disconnect()
    send(redis)


def _answers(redis: LeanRedis) -> bool:
    try:
        return bool(redis.ping())
    except TimeoutError:
        return False


def _in_child(redis: LeanRedis, report: Connection) -> None:
    report.send((_number(redis), redis.execute_command("ECHO", "child")))
    report.close()


def test_forked_child_has_connections_of_its_own(redis: LeanRedis) -> None:
    """A child never uses its parent's connection, which stays as it was."""
    parents = _number(redis)
    mine, theirs = forking.Pipe(duplex=False)
    child = forking.Process(target=_in_child, args=(redis, theirs))
    child.start()
    assert mine.poll(30)
    childs, echo = mine.recv()
    child.join(30)
    assert (echo, childs != parents, _number(redis)) == ("child", True, parents)


def test_many_threads_get_their_own_replies(redis: LeanRedis) -> None:
    """Threads share a client, but never a connection at the same time."""

    def asks(number: int) -> bool:
        words = [f"{number}.{i}" for i in range(3)]
        return redis.batch([("ECHO", word) for word in words]) == words == [redis.echo(word) for word in words]

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(asks, range(400)))


def test_script_that_redis_forgot_is_brought_along(redis: LeanRedis, other: Redis) -> None:
    """The error of a missing script reaches redis-py's script, which then loads it."""
    script = redis.register_script("return ARGV[1]")
    other.script_flush()
    assert script(args=["x"]) == "x"


def test_error_of_one_command_is_told_when_the_others_are_done(redis: LeanRedis) -> None:
    """The connection stays usable, and replies are parsed as by redis-py."""
    before = _number(redis)
    assert redis.batch([("SET", NAME, "x"), ("EXPIRE", NAME, 9)]) == [True, True]
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        redis.batch([("SET", NAME, "y"), ("HGET", NAME, "y"), ("EXPIRE", NAME, 60)])
    assert redis.get(NAME) == "y"
    assert redis.ttl(NAME) > 9
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        redis.execute_command("HGET", NAME, "y")
    assert _number(redis) == before


def test_transaction_tells_its_first_error(redis: LeanRedis) -> None:
    """An error inside a transaction is raised, although Redis executes the rest of it."""
    redis.set(NAME, "x")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        redis.transact(("HSET", NAME, "a", "b"), ("EXPIRE", NAME, 60))


def test_transaction_is_refused_whole_by_a_redis_without_memory() -> None:
    """A transaction for which Redis has no memory is not done by half, and the error says so."""
    with valkey_service() as url, Redis.from_url(url) as looking:
        full = LeanRedis(connection_pool=LeanPool.from_url(url))
        looking.config_set("maxmemory", "1")
        with pytest.raises(OutOfMemoryError):
            full.transact(("DEL", "nothing"), ("SET", NAME, "x"))
        looking.config_set("maxmemory", "0")
        assert not looking.exists(NAME)
        full.transact(("SET", NAME, "x"))
        full.connection_pool.disconnect()
