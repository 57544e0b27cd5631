"""Lists a server's tools: once, over a connection that is closed again before any process is forked."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable
from functools import partial
from typing import Final, TextIO

import anyio
from mcp import Client
from mcp_types import Tool

from harness_worker.adapters.mcp.endpoints import Endpoint, Mode
from harness_worker.adapters.mcp.exchanges import EXCHANGE, Exchange
from harness_worker.adapters.mcp.reasons import reason_of
from harness_worker.core.registration.tool_servers import ListedTool
from harness_worker.errors import ConfigError
from harness_worker.threads.timeouts import within

_CLOSING_S: Final = 10.0
"""How long to wait for a server to end, in seconds; the SDK kills it earlier than that."""

_MOST_PAGES: Final = 1_000
_MOST_SAID: Final = 300
_SHORTEST_SECRET: Final = 4


def listed(endpoint: Endpoint, *, timeout_s: float) -> tuple[Mode, tuple[ListedTool, ...]]:
    """How to talk to the server, and its tools.

    Raises:
        ConfigError: It cannot be reached, or does not answer within ``timeout_s`` seconds.
    """
    exchange = Exchange()
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        try:  # on a thread of its own, as a notebook's thread already has a loop
            return within(timeout_s + _CLOSING_S, partial(asyncio.run, _listed(endpoint, exchange, said, timeout_s)))
        except Exception as error:  # noqa: BLE001 - whatever the SDK raises, the application's author is told what to fix
            reason = reason_of(error, exchange, within_s=timeout_s)
            raise ConfigError(
                f"{endpoint} cannot be asked for its tools: {reason}{_last(said, endpoint)}; {_mend(endpoint)}"
            ) from None


async def all_tools(client: Client) -> Iterable[Tool]:
    """Every page of the server's list."""
    found: list[Tool] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if not cursor:
            break
    return found


async def _listed(
    endpoint: Endpoint, exchange: Exchange, said: TextIO, timeout_s: float
) -> tuple[Mode, tuple[ListedTool, ...]]:
    """Try the protocol of current servers for half of the time, then that of older ones for the rest.

    The SDK ends a server that it started only if it is stopped in its own way, which ``asyncio.timeout`` is not.
    """
    EXCHANGE.set(exchange)
    with anyio.fail_after(timeout_s):
        try:
            with anyio.fail_after(timeout_s / 2 if endpoint.command else timeout_s):
                return "auto", await _tools(endpoint, "auto", said)
        except Exception:
            if not endpoint.command:
                raise
        return "legacy", await _tools(endpoint, "legacy", said)


async def _tools(endpoint: Endpoint, mode: Mode, said: TextIO) -> tuple[ListedTool, ...]:
    async with endpoint.opened(mode=mode, said=said) as client:
        return tuple(map(_tool, await all_tools(client)))


def _tool(tool: Tool) -> ListedTool:
    hints = tool.annotations
    return ListedTool(
        name=tool.name,
        description=tool.description or tool.title or tool.name,
        schema=tool.input_schema,
        is_read_only=hints is not None and hints.read_only_hint is True,
        is_destructive=hints is not None and hints.destructive_hint is True,
        is_idempotent=hints is not None and hints.idempotent_hint is True,
    )


def _last(said: TextIO, endpoint: Endpoint) -> str:
    """The last line that a command wrote to its standard error, without its variables' values."""
    said.seek(0)
    lines = [line.strip() for line in said if line.strip()]
    if not lines:
        return ""
    last = lines[-1][:_MOST_SAID]
    for value in endpoint.env.values():
        if len(value) >= _SHORTEST_SECRET:
            last = last.replace(value, "***")
    return f"; it said: {last}"


def _mend(endpoint: Endpoint) -> str:
    how = "run the command by hand" if endpoint.command else "see that it runs, and the URL and the headers are right"
    return f"{how}, or give it longer with connect_timeout_s=…"
