"""A Google-style docstring as what a model reads: a description, and a line for each argument."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field

_SECTION = re.compile(r"^(?P<title>(Keyword )?Arg(ument)?s|Parameters|Returns|Yields|Raises|Examples?|Notes?):\s*$")
_ARGUMENT = re.compile(r"^(?P<name>\*{0,2}\w+)\s*(?:\([^)]*\))?:\s*(?P<text>.*)$")
_ARGUMENT_SECTIONS = {"Args", "Arguments", "Keyword Args", "Keyword Arguments", "Parameters"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DocText:
    """A docstring's text without its known sections, and its ``Args:`` by name."""

    description: str = ""
    arguments: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """A line at the margin, with the blank and the deeper ones below it."""

    head: str
    body: tuple[str, ...]

    @property
    def section(self) -> str | None:
        """The title of a known section; a title with nothing below it is text."""
        titled = _SECTION.match(self.head)
        return titled["title"] if titled and "".join(self.body).strip() else None


def parse_docstring(doc: str | None) -> DocText:
    """Split a docstring. Text that is not in a known section of Google form is all description."""
    blocks = _blocks(inspect.cleandoc(doc or "").splitlines())
    text = (line for block in blocks if block.section is None for line in (block.head, *block.body))
    arguments: dict[str, str] = {}
    for block in blocks:
        if block.section in _ARGUMENT_SECTIONS:
            arguments |= _arguments(textwrap.dedent("\n".join(block.body)).splitlines())
    return DocText(description="\n".join(text).strip(), arguments=arguments)


def _blocks(lines: Iterable[str]) -> list[_Block]:
    found: list[list[str]] = []
    for line in lines:
        if found and (not line or line[0].isspace()):
            found[-1].append(line)
        else:
            found.append([line])
    return [_Block(head=head, body=tuple(body)) for head, *body in found]


def _arguments(lines: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    name = ""
    for line in lines:
        if started := _ARGUMENT.match(line):
            name = started["name"]
            found[name] = started["text"].strip()
        elif name and line.strip():
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found
