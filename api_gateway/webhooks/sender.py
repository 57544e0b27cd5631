"""One HTTP request to an endpoint, and its answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from httpcore2 import (
    AsyncConnectionPool,
    ConnectTimeout,
    NetworkError,
    Response,
    TimeoutException,
    default_ssl_context,
)

from api_gateway.requests.webhook_urls import parsed
from api_gateway.webhooks.addresses import CheckedBackend, NoAddress, NoThread
from api_gateway.webhooks.rules import ReceiverAnswer, answer_of

TIMEOUT_S: Final = 15.0

READ_BYTES: Final = 4_096
READ_TIMEOUT_S: Final = 1.0
"""How much of an answer's body is read, and for how long, so that the endpoint can finish; the body is not used."""

MOST_ERROR_CHARS: Final = 200
SENDER: Final = {"content-type": "application/json", "user-agent": "agent-harness", "connection": "close"}


class Sender:
    """Posts to the URLs that clients have given; follows no redirect, and uses no proxy that the environment names.

    Each request has a connection of its own, so that the address is checked each time.

    Args:
        allow_private: Whether addresses that are not public are allowed.
        timeout_s: The timeout of an attempt: resolving, connecting, sending, and the head of the answer.
    """

    def __init__(self, *, allow_private: bool, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._pool = AsyncConnectionPool(
            ssl_context=default_ssl_context(),
            max_connections=None,
            max_keepalive_connections=0,
            network_backend=CheckedBackend(allow_private=allow_private),
        )

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> ReceiverAnswer:
        """Send a request and return the endpoint's answer; if there is none, its ``error`` says why.

        Raises:
            NoThread: The system gives no thread to resolve the endpoint's name with.
            MemoryError: Memory is short in this process.
        """
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                return await self._post(url, {**SENDER, **headers}, body, limit)
        except ConnectTimeout as late:
            return ReceiverAnswer(error=str(late))
        except (TimeoutError, TimeoutException):
            return ReceiverAnswer(error=f"no answer within {self._timeout_s:g} s")
        except NoAddress as none:
            return ReceiverAnswer(error=str(none))
        except NetworkError as broken:
            return ReceiverAnswer(error=_in_words("cannot connect, or the connection broke", broken))
        except (NoThread, MemoryError):  # not the endpoint's failure
            raise
        except Exception as odd:  # noqa: BLE001 - whatever an endpoint does is its answer
            return ReceiverAnswer(error=_in_words("the answer is not valid HTTP", odd))

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.aclose()

    async def _post(self, url: str, headers: Mapping[str, str], body: bytes, limit: asyncio.Timeout) -> ReceiverAnswer:
        """The endpoint's answer; ``limit`` no longer applies once the answer's head has come."""
        target = str(parsed(url))
        named = [("host", urlsplit(target).netloc), *headers.items()]
        async with self._pool.stream("POST", target, headers=named, content=body) as response:
            limit.reschedule(None)
            given = {name.lower(): value for name, value in response.headers}
            retry_after = given.get(b"retry-after", b"").decode("latin-1")
            await _read_some(response)
        return answer_of(response.status, retry_after, time.time())


async def _read_some(response: Response) -> None:
    size_bytes = 0
    with suppress(Exception):  # the status is all that counts
        async with asyncio.timeout(READ_TIMEOUT_S):
            async for piece in response.aiter_stream():
                size_bytes += len(piece)
                if size_bytes >= READ_BYTES:
                    return


def _in_words(what: str, error: Exception) -> str:
    text = "".join(char if char.isprintable() else "·" for char in str(error))
    return f"{what}: {text or type(error).__name__}"[:MOST_ERROR_CHARS]
