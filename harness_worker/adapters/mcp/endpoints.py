"""Where an MCP server is, and how a connection to it is opened."""

from __future__ import annotations

import re
import shlex
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Final, Literal, TextIO, TypeAlias

import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import Implementation

from harness_worker.adapters.mcp.command_guard import guarded
from harness_worker.adapters.mcp.exchanges import MOST_BYTES, NotingClient
from harness_worker.adapters.mcp.watching import watched
from harness_worker.errors import SHORTAGES, ConfigError
from harness_worker.ports import ignore
from harness_worker.urls import masked, no_environment

Headers: TypeAlias = Mapping[str, str] | Callable[[], Mapping[str, str]]
Mode: TypeAlias = Literal["auto", "legacy"]

IO_TIMEOUT_S: Final = 30.0
"""How long connecting, or sending a request, may take; a call's own time is limited by its tool's ``timeout_s``."""

_NAME: Final = "agent-harness"
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a server is: a command, or a URL. Its ``repr`` shows nothing that may be secret.

    Args:
        name: The application's name for the server.
        command: Starts the server, which speaks over its standard input and output.
        url: The server's URL for streamable HTTP.
        env: Variables for the command, besides ``HOME``, ``PATH`` and the like.
        cwd: The command's working directory; ``None``: that of this process.
        headers: The headers of each request, or a function that is called for them before each request.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str = field(default="", repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    headers: Headers = field(default_factory=dict[str, str], repr=False)

    def __str__(self) -> str:
        """The server's name and location, without secrets."""
        return f"MCP server {self.name!r} ({shlex.join(self.command) if self.command else masked(self.url)})"

    @asynccontextmanager
    async def opened(self, *, mode: Mode, said: TextIO, on_end: Callable[[], None] = ignore) -> AsyncGenerator[Client]:
        """A connection, ready for requests; leaving the context ends a server that it started.

        Args:
            mode: How the version of the protocol is agreed on; ``legacy`` is for servers that accept nothing before
                their handshake.
            said: A file for what a command writes to its standard error.
            on_end: Called when the server has closed the connection.
        """
        info = Implementation(name=_NAME, version=_version())
        if self.command:
            program, *arguments = guarded(self.command)
            started = StdioServerParameters(command=program, args=arguments, env=dict(self.env), cwd=self.cwd)
            pipes = watched(stdio_client(started, errlog=said), on_end)
            async with Client(pipes, mode=mode, client_info=info, cache=None) as client:
                yield client
            return
        async with self._http() as http:
            posts = streamable_http_client(self.url, http_client=http, max_sse_event_size=MOST_BYTES)
            pipes = watched(posts, on_end)
            async with Client(pipes, mode=mode, client_info=info, cache=None) as client:
                yield client

    def _http(self) -> NotingClient:
        try:
            return NotingClient(self._headers_now, timeout=httpx2.Timeout(IO_TIMEOUT_S, read=None))
        except (OSError, ImportError, ValueError, httpx2.InvalidURL) as error:  # their words may hold a password
            if isinstance(error, OSError) and error.errno in SHORTAGES:
                raise
            raise ConfigError(no_environment(type(error).__name__)) from None

    def _headers_now(self) -> Mapping[str, str]:
        return checked_headers(str(self), self.headers()) if callable(self.headers) else self.headers


def _version() -> str:
    try:
        return version(_NAME)
    except PackageNotFoundError:  # run from its source tree
        return "0"


def checked_headers(label: str, headers: Mapping[str, str]) -> Mapping[str, str]:
    """The headers, unchanged.

    Raises:
        ConfigError: One of them cannot be sent; the message gives its name, but not its value.
    """
    for name, value in headers.items():
        if _TOKEN.fullmatch(name) is None or not (value.isascii() and value.isprintable()) or value != value.strip():
            raise ConfigError(f"{label}: a request cannot hold the header {name!r} as it is given")
    return headers
