"""Tools that a server lists: their names here, which are taken, and what is believed of them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.tool_options import TOOL_NAME
from harness_worker.core.registration.tool_servers import ListedTool, names_of, wanted
from harness_worker.errors import ConfigError

WORDS = st.text(st.sampled_from("ab._/-é") | st.characters(), min_size=1, max_size=90)


def listed(*names: str) -> tuple[ListedTool, ...]:
    """Tools of these names."""
    return tuple(ListedTool(name=name, description=name, schema={}) for name in names)


@given(st.lists(WORDS, unique=True, max_size=8))
@example(["::", ":\ud800"])
def test_names_are_fit_and_differ(tools: list[str]) -> None:
    """That holds whatever a server calls its tools."""
    names = names_of("files", tools)
    assert list(names) == tools
    assert len(set(names.values())) == len(tools)
    assert all(TOOL_NAME.fullmatch(name) for name in names.values())


def test_names_are_plain_where_they_can_be() -> None:
    """A part of its hash has only who needs it: its name is too long, or another's comes out the same."""
    names = names_of("files", ["read", "user.get", "a.b", "a_b", "x" * 60])
    assert [names[tool] for tool in ("read", "user.get", "a_b")] == ["files__read", "files__user_get", "files__a_b"]
    assert re.fullmatch(r"files__a_b_[0-9a-f]{6}", names["a.b"])
    assert re.fullmatch(r"files__x{50}_[0-9a-f]{6}", names["x" * 60])


def test_tools_are_chosen() -> None:
    """The chosen tools keep the server's order."""
    tools = listed("a", "b", "c")
    assert wanted("s", tools, include=None, exclude=["b"], changed=["a"]) == (tools[0], tools[2])
    assert wanted("s", tools, include=["c", "a"], exclude=["c"], changed=[]) == (tools[0],)


@pytest.mark.parametrize("word", ["include", "exclude", "tools"])
def test_tool_that_is_not_there_cannot_be_chosen(word: str) -> None:
    """A slip of the pen would else offer what was to be left out."""
    choice: dict[str, Any] = {"include": None, "exclude": (), "changed": ()}
    choice[{"tools": "changed"}.get(word, word)] = ["wipee"]
    many = [f"t{number:02}" for number in range(30)]
    with pytest.raises(ConfigError) as refused:
        wanted("s", listed(*many), **choice)
    assert str(refused.value) == (
        f"MCP server 's': {word} names 'wipee'; there are: {', '.join(many[:20])} and 10 more"
    )


def test_server_without_a_tool_is_refused() -> None:
    """An agent would miss them."""
    with pytest.raises(ConfigError, match="no tool is left of: a; correct include and exclude"):
        wanted("s", listed("a"), include=None, exclude=["a"], changed=[])


@pytest.mark.parametrize(
    ("hints", "effect"),
    [
        ({}, None),
        ({"is_read_only": True, "is_destructive": True}, Effect.READ_ONLY),
        ({"is_destructive": True}, Effect.DESTRUCTIVE),
    ],
)
def test_hints_are_options(hints: dict[str, bool], effect: Effect | None) -> None:
    """A tool that changes nothing cannot destroy; of one that says nothing, nothing is known."""
    tool = ListedTool(name="a", description="", schema={}, **hints)
    assert tool.hinted == {"effect": effect, "idempotent": False}
