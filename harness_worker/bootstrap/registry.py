"""The registry that applications import: it can also register the tools of MCP servers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, Unpack

from harness_worker.bootstrap.extras import installing
from harness_worker.core.registration import registry
from harness_worker.core.registration.keywords import declares
from harness_worker.core.registration.tool_options import ToolKeywords, is_number
from harness_worker.core.registration.tool_servers import SERVER_NAME, check_choice, names_of, wanted
from harness_worker.errors import ConfigError

CONNECT_TIMEOUT_S: Final = 20.0

_SERVERS: Final = "harness_worker.adapters.mcp.servers"


class Registry(registry.Registry):
    """Agents and the tools they may use. A wrong declaration raises ``ConfigError`` at once.

    Args:
        max_tool_timeout_s: The longest ``timeout_s`` of its tools, in seconds, in a notebook or a test. In a worker,
            ``HARNESS_MAX_TOOL_TIMEOUT_S`` applies instead.
    """

    def __init__(self, *, max_tool_timeout_s: float = registry.MAX_TIMEOUT_S) -> None:
        super().__init__(max_tool_timeout_s=max_tool_timeout_s)
        self._servers: dict[str, Callable[[], None]] = {}

    @declares
    def mcp(  # noqa: PLR0913 - the words of a server's declaration
        self,
        name: str,
        *,
        command: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        url: str | None = None,
        headers: Mapping[str, str] | Callable[[], Mapping[str, str]] | None = None,
        include: Collection[str] | None = None,
        exclude: Collection[str] = (),
        tools: Mapping[str, ToolKeywords] | None = None,
        trust_hints: bool = False,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        **options: Unpack[ToolKeywords],
    ) -> tuple[str, ...]:
        """Register the tools of a server that speaks the Model Context Protocol; the server is asked for them now.

        Args:
            name: The prefix of its tools' names: ``name__tool``.
            command: Starts the server, which speaks over its standard input and output.
            env: Variables for the command, besides ``HOME``, ``PATH`` and the like.
            cwd: The command's working directory; by default that of this process.
            url: The server's URL for streamable HTTP, instead of a command.
            headers: The headers of each request, or a function that is called for them before each request.
            include: The tools to register, by the server's names; by default all.
            exclude: The tools to leave out, by the server's names.
            tools: Options of single tools, by the server's names.
            trust_hints: Whether to trust the server's hints about its tools' effects.
            connect_timeout_s: How long it may take to list its tools now, or to open a connection later, in seconds.
            **options: Options as in ``add_tool``, for all of its tools.

        Returns:
            The tools' names, for agents' declarations.

        Raises:
            ConfigError: The server cannot be reached, one of its tools cannot be registered, or an option makes no
                sense; the message names the server and says what to change.
        """
        self._check_server(name, connect_timeout_s)
        own = tools or {}
        check_choice(name, include=include, exclude=exclude, tools=own, options=options, trust_hints=trust_hints)
        servers = _servers(name)
        endpoint = servers.endpoint_of(name, command=command, env=env, cwd=cwd, url=url, headers=headers)
        server = servers.server_of(endpoint, connect_timeout_s=connect_timeout_s)
        chosen = wanted(name, server.tools, include=include, exclude=exclude, changed=own)
        names = names_of(name, [tool.name for tool in server.tools])
        registered: list[str] = []
        for tool in chosen:
            hinted: ToolKeywords = tool.hinted if trust_hints else {}
            merged: ToolKeywords = {**hinted, **options, **own.get(tool.name, {})}
            try:
                self.add_tool(
                    server.calling(tool.name),
                    name=names[tool.name],
                    schema=tool.schema,
                    description=tool.description,
                    **merged,
                )
            except ConfigError as error:
                self._take_back(registered)  # all or none, so that a corrected declaration can follow
                raise ConfigError(f"{error}; or leave it out with exclude=[{tool.name!r}]") from None
            registered.append(names[tool.name])
        self._servers[name] = server.close
        return tuple(registered)

    def close(self) -> None:
        """Close the connections to MCP servers that this process keeps; a later call opens another."""
        for close in self._servers.values():
            close()

    def _check_server(self, name: object, timeout_s: object) -> None:
        if not isinstance(name, str) or SERVER_NAME.fullmatch(name) is None:
            raise ConfigError(f"MCP server {name!r}: a name is 1 to 32 of A-Z a-z 0-9 _ -")
        if name in self._servers:
            raise ConfigError(f"MCP server {name!r} is declared twice; give each server a name of its own")
        if not is_number(timeout_s) or timeout_s <= 0:
            raise ConfigError(f"MCP server {name!r}: connect_timeout_s must be seconds above 0, not {timeout_s!r}")


def _servers(name: str) -> Any:  # noqa: ANN401 - a module that only some applications need
    try:
        return import_module(_SERVERS)
    except ImportError as missing:
        raise ConfigError(f"MCP server {name!r}: {missing}; {installing('mcp')}") from None
