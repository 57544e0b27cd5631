"""Tools that an MCP server lists: their names here, the selection of them, and the use of the server's hints."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, cast

from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.tool_options import ToolKeywords
from harness_worker.errors import ConfigError

SERVER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
MAX_NAME_CHARS: Final = 64

_SEPARATOR: Final = "__"
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_HASH_CHARS: Final = 6
_SHOWN: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTool:
    """One tool as its server describes it.

    Args:
        name: The server's name for it.
        description: The description for the model.
        schema: JSON Schema of its arguments.
        is_read_only: The server's hint that it changes nothing.
        is_destructive: The server's hint that it is destructive; ``False`` and ``None`` mean the same here.
        is_idempotent: The server's hint that a repeated call has no further effect.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    is_read_only: bool = False
    is_destructive: bool = False
    is_idempotent: bool = False

    @property
    def hinted(self) -> ToolKeywords:
        """Its hints as options of a registration."""
        if self.is_read_only:
            return {"effect": Effect.READ_ONLY, "idempotent": self.is_idempotent}
        return {"effect": Effect.DESTRUCTIVE if self.is_destructive else None, "idempotent": self.is_idempotent}


def names_of(server: str, tools: Sequence[str]) -> dict[str, str]:
    """Each tool's name here: ``server__tool``, at most 64 of ``A-Z a-z 0-9 _ -``.

    A name that is too long, or equal to another's once made, ends in a part of its hash.
    """
    plain = {tool: f"{server}{_SEPARATOR}{_OTHER.sub('_', tool)}" for tool in tools}
    times = Counter(plain.values())

    def chosen(tool: str) -> str:
        name = plain[tool]
        is_own = name == f"{server}{_SEPARATOR}{tool}"
        if len(name) <= MAX_NAME_CHARS and (is_own or times[name] == 1):
            return name
        digest = hashlib.sha256(tool.encode(errors="surrogatepass")).hexdigest()[:_HASH_CHARS]
        return f"{name[: MAX_NAME_CHARS - _HASH_CHARS - 1]}_{digest}"

    return {tool: chosen(tool) for tool in tools}


def check_choice(
    server: str, *, include: object, exclude: object, tools: object, options: Iterable[str], trust_hints: object
) -> None:
    """Check what is said about a server's tools, before the server is asked for them.

    Args:
        server: The server's name, for error messages.
        include: The tools to register, by the server's names; ``None``: all.
        exclude: The tools to leave out.
        tools: Options of single tools, by the server's names.
        options: The names of the options for all of them.
        trust_hints: Whether to trust the server's hints.

    Raises:
        ConfigError: One of these makes no sense; the message says what is allowed.
    """
    for mend in _mistakes(include, exclude, tools, options, trust_hints):
        raise ConfigError(f"MCP server {server!r}: {mend}")


def _mistakes(
    include: object, exclude: object, tools: object, options: Iterable[str], trust_hints: object
) -> Iterator[str]:
    for word, names in (("include", () if include is None else include), ("exclude", exclude)):
        if not _is_list_of_names(names):
            yield f"{word} must be a list of the server's names of tools, not {names!r}"
    own = list(cast("Mapping[str, object]", tools).values()) if isinstance(tools, Mapping) else [tools]
    if not all(isinstance(each, Mapping) for each in own):
        yield 'tools must be a dict of dicts, such as {"count": {"effect": Effect.READ_ONLY}}'
    known = ToolKeywords.__annotations__
    for option in chain(options, *cast("list[Mapping[str, object]]", own)):
        if option not in known:
            yield f"a tool of it has no option {option!r}; there are: {', '.join(known)}"
    if not isinstance(trust_hints, bool):
        yield f"trust_hints must be True or False, not {trust_hints!r}"


def _is_list_of_names(names: object) -> bool:
    if isinstance(names, str) or not isinstance(names, Collection):
        return False
    return all(isinstance(name, str) for name in cast("Collection[object]", names))


def wanted(
    server: str,
    listed: Iterable[ListedTool],
    *,
    include: Collection[str] | None,
    exclude: Collection[str],
    changed: Iterable[str],
) -> tuple[ListedTool, ...]:
    """The tools to register, in the server's order.

    Args:
        server: The server's name, for error messages.
        listed: Its tools.
        include: The tools to register, by the server's names; ``None``: all.
        exclude: The tools to leave out.
        changed: The tools that are given options of their own.

    Raises:
        ConfigError: One of these names no tool of the server, or no tool is left.
    """
    known = {tool.name: tool for tool in listed}
    for word, names in (("include", include or ()), ("exclude", exclude), ("tools", changed)):
        for name in names:
            if name not in known:
                raise ConfigError(f"MCP server {server!r}: {word} names {name!r}; there are: {_shown(known)}")
    left = [tool for tool in known.values() if include is None or tool.name in set(include)]
    left = [tool for tool in left if tool.name not in set(exclude)]
    if not left:
        raise ConfigError(f"MCP server {server!r}: no tool is left of: {_shown(known)}; correct include and exclude")
    return tuple(left)


def _shown(known: Mapping[str, object]) -> str:
    more = len(known) - _SHOWN
    return (", ".join(list(known)[:_SHOWN]) or "none") + (f" and {more} more" if more > 0 else "")
