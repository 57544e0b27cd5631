"""Checks an application's declaration of a server, and fetches the server's tools."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast
from urllib.parse import urlsplit

from mcp.client import session, stdio

from harness_worker.adapters.mcp.calls import McpTool
from harness_worker.adapters.mcp.endpoints import Endpoint, Headers, checked_headers
from harness_worker.adapters.mcp.keeping import KeptConnection
from harness_worker.adapters.mcp.tool_listing import listed
from harness_worker.core.registration.tool_servers import ListedTool
from harness_worker.errors import ConfigError

_QUIET: Final = {
    "httpx2": logging.WARNING,
    "httpcore2": logging.INFO,
    "mcp": logging.WARNING,
    "mcp.client.streamable_http": logging.CRITICAL,
}
"""Below these levels they log URLs, sessions and messages, which may be secret; the last logs every abandoned call."""

_QUOTING: Final = {"client": session.__file__, "mcp.client.stdio": stdio.__file__}
"""Loggers to which these modules of the SDK report messages that they cannot read, with errors that quote them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A server whose tools are known; no connection to it is opened before one of them is called.

    Args:
        name: The application's name for it.
        tools: Its tools.
        kept: The connection for calls.
    """

    name: str
    tools: tuple[ListedTool, ...]
    kept: KeptConnection

    def calling(self, tool: str) -> McpTool:
        """The function that calls a tool, given the server's name for the tool."""
        return McpTool(server=self.name, tool=tool, kept=self.kept)

    def close(self) -> None:
        """Close the connection that this process keeps."""
        self.kept.close()


def server_of(endpoint: Endpoint, *, connect_timeout_s: float) -> McpServer:
    """Ask a server for its tools.

    Raises:
        ConfigError: The server cannot be reached.
    """
    _keep_quiet()
    mode, tools = listed(endpoint, timeout_s=connect_timeout_s)
    return McpServer(
        name=endpoint.name, tools=tools, kept=KeptConnection(endpoint, mode=mode, connect_timeout_s=connect_timeout_s)
    )


def endpoint_of(
    name: str,
    *,
    command: Sequence[str] | None,
    env: Mapping[str, str] | None,
    cwd: str | None,
    url: str | None,
    headers: Headers | None,
) -> Endpoint:
    """Where a server is, after checking the declaration.

    Raises:
        ConfigError: The declaration makes no sense.
    """
    label = f"MCP server {name!r}"
    for is_right, mend in _rules(command=command, env=env, cwd=cwd, url=url, headers=headers):
        if not is_right:
            raise ConfigError(f"{label}: {mend}")
    if headers is not None and not callable(headers):
        checked_headers(label, headers)
    return Endpoint(
        name=name, command=tuple(command or ()), url=url or "", env=env or {}, cwd=cwd, headers=headers or {}
    )


def _rules(*, command: object, env: object, cwd: object, url: object, headers: object) -> list[tuple[bool, str]]:
    return [
        ((command is None) != (url is None), "say either command=[…] or url='…'"),
        (command is None or _is_command(command), "command must be a list such as ['python', '-m', 'my_server']"),
        (url is None or _is_url(url), "url must be http:// or https:// with a host"),
        (env is None or _is_texts(env), "env must be a dict of texts"),
        (cwd is None or isinstance(cwd, str), "cwd must be a directory's path"),
        (command is not None or (env is None and cwd is None), "env and cwd are for a command; a URL takes headers"),
        (url is not None or headers is None, "headers are for a URL; a command takes env"),
        (headers is None or callable(headers) or _is_texts(headers), "headers must be a dict of texts, or a function"),
    ]


def _is_command(given: object) -> bool:
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        return False
    parts = cast("Sequence[object]", given)
    return bool(parts) and bool(parts[0]) and all(map(_is_text, parts))


def _is_text(given: object) -> bool:
    return isinstance(given, str) and "\0" not in given


def _is_url(given: object) -> bool:
    if not isinstance(given, str):
        return False
    try:
        parts = urlsplit(given)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _is_texts(given: object) -> bool:
    if not isinstance(given, Mapping):
        return False
    pairs = cast("Mapping[object, object]", given)
    return all(_is_text(text) for pair in pairs.items() for text in pair)


def _keep_quiet() -> None:
    for name, level in _QUIET.items():
        library = logging.getLogger(name)
        if library.level == logging.NOTSET:  # a level that was set on purpose stays
            library.setLevel(level)
    for name in _QUOTING:
        logging.getLogger(name).addFilter(_without_error)


def _without_error(record: logging.LogRecord) -> bool:
    if record.pathname in _QUOTING.values():  # an application may have a logger of that name
        record.exc_info = None
    return True
