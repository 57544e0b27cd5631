"""What is said of an MCP server, before anybody asks it."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent

from harness_worker import Registry
from harness_worker.adapters.mcp.contents import text_of
from harness_worker.adapters.mcp.servers import endpoint_of
from harness_worker.errors import ConfigError

SECRET = "open-sesame"  # noqa: S105 - everybody knows it
URL = "https://example.org/mcp"


@pytest.mark.parametrize(
    ("said", "mend"),
    [
        ({}, "say either command=[…] or url='…'"),
        ({"command": ["x"], "url": URL}, "say either command=[…] or url='…'"),
        ({"command": "python -m x"}, "command must be a list such as"),
        ({"command": []}, "command must be a list such as"),
        ({"command": ["x", 1]}, "command must be a list such as"),
        ({"url": "example.org/mcp"}, "url must be http:// or https:// with a host"),
        ({"url": "https://example.org:0/mcp"}, "url must be http:// or https:// with a host"),
        ({"url": URL, "env": {"A": "b"}}, "env and cwd are for a command"),
        ({"command": ["x"], "headers": {"a": "b"}}, "headers are for a URL"),
        ({"command": ["x"], "env": {"A": 1}}, "env must be a dict of texts"),
        ({"command": ["x"], "cwd": 1}, "cwd must be"),
        ({"url": URL, "headers": ["a"]}, "headers must be a dict of texts, or a function"),
        ({"url": URL, "headers": {"a": f"{SECRET}\n"}}, "a request cannot hold the header 'a' as it is given"),
        ({"url": URL, "connect_timeout_s": 0}, "connect_timeout_s must be seconds above 0, not 0"),
        ({"url": URL, "include": "count"}, "include must be a list of the server's names of tools, not 'count'"),
        ({"url": URL, "exclude": 5}, "exclude must be a list of the server's names of tools, not 5"),
        ({"url": URL, "exclude": (name for name in ["a"])}, "exclude must be a list of the server's names of tools"),
        ({"url": URL, "include": [["a"]]}, "include must be a list of the server's names of tools, not [['a']]"),
        ({"url": URL, "tools": ["count"]}, "tools must be a dict of dicts"),
        ({"url": URL, "tools": {"count": True}}, "tools must be a dict of dicts"),
        ({"url": URL, "tools": {"count": {"description": "x"}}}, "a tool of it has no option 'description'"),
        ({"url": URL, "schema": {}}, "a tool of it has no option 'schema'; there are: effect, idempotent"),
        ({"url": URL, "idempotent": True, "schema": {}}, "a tool of it has no option 'schema'"),
        ({"url": URL, "trust_hints": "no"}, "trust_hints must be True or False, not 'no'"),
    ],
)
def test_server_that_makes_no_sense_is_refused(said: dict[str, Any], mend: str) -> None:
    """The message names the server and says how to mend it."""
    with pytest.raises(ConfigError) as refused:
        Registry().mcp("s", **said)
    assert str(refused.value).startswith(f"MCP server 's': {mend}")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("name", ["", "a b", "x" * 33, 7])
def test_server_needs_a_name_that_tools_may_begin_with(name: Any) -> None:  # noqa: ANN401 - whatever somebody writes
    """It is half of theirs."""
    with pytest.raises(ConfigError, match="a name is 1 to 32 of"):
        Registry().mcp(name, command=["x"])


def test_server_without_a_name_is_refused() -> None:
    """The message is like that about any other mistake."""
    declare: Any = Registry().mcp
    with pytest.raises(ConfigError, match=r"^mcp\(…\): missing a required argument: 'name'"):
        declare(command=["x"])


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the SDK, its package is told."""
    monkeypatch.setitem(sys.modules, "harness_worker.adapters.mcp.servers", None)
    with pytest.raises(ConfigError, match=r"MCP server 's': .*; install .* \(.*: \.ci/install mcp\)"):
        Registry().mcp("s", command=["x"])


def test_secrets_are_not_shown() -> None:
    """Neither in a repr nor where it is told which server is meant."""
    url = f"https://user:{SECRET}@example.org/mcp?token={SECRET}"
    web = endpoint_of("s", command=None, env=None, cwd=None, url=url, headers={"a": SECRET})
    own = endpoint_of("s", command=["x"], env={"A": SECRET}, cwd=None, url=None, headers=None)
    assert SECRET not in f"{web} {own} {web!r} {own!r}"
    assert str(own) == "MCP server 's' (x)"


def test_structured_content_stands_in_for_none() -> None:
    """A server that has both says the same in its text."""
    assert text_of(CallToolResult(content=[], structured_content={"a": 1})) == '{"a":1}'
    told = CallToolResult(content=[TextContent(text="one")], structured_content={"a": 1})
    assert text_of(told) == "one"
