"""redis-py with less work between a command and its reply.

Most of the cost of a command in redis-py is not its two system calls, but telemetry that nobody reads, a retry object
and a wrapper that warns. Here a command is one write and one read, and is never sent twice. Connections, URLs, TLS,
forks and the interpretation of replies are left to redis-py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from hiredis import pack_command
from redis import Redis
from redis.connection import ConnectionPool
from redis.exceptions import (
    ConnectionError,  # noqa: A004 - redis-py's own, not the builtin
    ResponseError,
    TimeoutError,  # noqa: A004 - redis-py's own, not the builtin
)

# redis-py has types for arguments, but for little of what it passes on.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

Command: TypeAlias = Sequence[str | bytes | int | float]


class LeanPool(ConnectionPool):
    """redis-py's pool without its telemetry; safe between threads and after a fork.

    It takes no lock, which might stay locked after an error: what it does with lists and sets is atomic.
    """

    def get_connection(self, *_: Any, **__: Any) -> Any:  # noqa: ANN401 - redis-py's own, its arguments mean nothing
        """Lend a connection; one that the server closed, or with an old reply waiting on it, is reconnected first."""
        self._checkpid()
        try:
            connection = self._available_connections.pop()
        except IndexError:
            connection = self.make_connection()
        self._in_use_connections.add(connection)
        try:
            if not connection.is_connected:
                connection.connect()
            elif not _is_clean(connection):
                connection.disconnect()
                connection.connect()
        except BaseException:
            connection.disconnect()  # its handshake may be incomplete
            self.release(connection)
            raise
        return connection

    def release(self, connection: Any) -> None:  # noqa: ANN401 - any redis-py connection
        """Take back a connection; one that was lent before a fork is no longer ours."""
        self._checkpid()
        if connection not in self._in_use_connections:
            return
        self._in_use_connections.remove(connection)
        if connection.should_reconnect():
            connection.disconnect()
        connection.re_auth()
        self._available_connections.append(connection)

    def disconnect(self, inuse_connections: bool = True) -> None:
        """Close the connections, also those that are lent if asked; other threads may use the pool meanwhile."""
        self._checkpid()
        lent = tuple(self._in_use_connections) if inuse_connections else ()
        for connection in (*self._available_connections, *lent):
            connection.disconnect()


class LeanRedis(Redis):
    """redis-py's client, with commands and batches that are one write, followed by reading the replies.

    If not all replies were read, the connection is closed, so that no reply is ever taken for another command's.
    """

    def execute_command(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - redis-py's own signature
        """Send one command and return its reply as redis-py reads it.

        Raises:
            redis.RedisError: As redis-py itself raises it.
        """
        if self.connection is not None:  # a client with one connection, which its owner polls
            return super().execute_command(*args, **options)
        connection = self.connection_pool.get_connection()
        try:
            connection.send_packed_command([_packed(args)])
            return self.parse_response(connection, args[0], **options)
        except ResponseError:
            raise
        except BaseException:
            connection.disconnect()
            raise
        finally:
            self.connection_pool.release(connection)

    def batch(self, commands: Sequence[Command]) -> list[Any]:
        """Send several commands in one round trip and return their replies as redis-py reads them.

        Raises:
            redis.ResponseError: The first error among the replies; the other commands were executed.
            redis.ConnectionError, redis.TimeoutError: Not all replies arrived.
        """
        replies = self._sent(commands)
        _raise_first(replies)
        return [self._meant(command[0], reply) for command, reply in zip(commands, replies, strict=True)]

    def transact(self, *commands: Command) -> None:
        """Execute several commands together or not at all.

        Raises:
            redis.ResponseError: The first error among the replies.
            redis.ConnectionError, redis.TimeoutError: Not all replies arrived.
        """
        *queued, done = self._sent([("MULTI",), *commands, ("EXEC",)])
        _raise_first([*queued, *(done if isinstance(done, list) else [done])])

    def _sent(self, commands: Sequence[Command]) -> list[Any]:
        connection = self.connection_pool.get_connection()
        try:
            connection.send_packed_command([b"".join(map(_packed, commands))])
            return [_reply(connection) for _ in commands]
        except BaseException:
            connection.disconnect()
            raise
        finally:
            self.connection_pool.release(connection)

    def _meant(self, name: Any, reply: Any) -> Any:  # noqa: ANN401 - whatever Redis replies
        callback = self.response_callbacks.get(name)
        return reply if callback is None else callback(reply)


def _packed(command: Command) -> bytes:
    name, *arguments = command
    words: Any = (*str(name).split(), *arguments)  # some of redis-py's command names are two words
    try:
        return pack_command(words)
    except UnicodeEncodeError:  # hiredis refuses lone surrogates
        as_bytes: Any = [word.encode("utf-8", "surrogatepass") if isinstance(word, str) else word for word in words]
        return pack_command(tuple(as_bytes))


def _reply(connection: Any) -> Any:  # noqa: ANN401 - whatever Redis replies
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


def _raise_first(replies: Sequence[Any]) -> None:
    for reply in replies:
        if isinstance(reply, ResponseError):
            raise reply


def _is_clean(connection: Any) -> bool:  # noqa: ANN401 - any redis-py connection
    try:
        return not connection.can_read()
    except (ConnectionError, TimeoutError, OSError):
        return False
