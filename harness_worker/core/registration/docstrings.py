"""A Google-style docstring as what a model reads: a description, and a line for each argument."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Yields|Raises|Example|Examples|Note|Notes):\s*$")
_ARGUMENT = re.compile(r"^(?P<name>\*{0,2}\w+)\s*(?:\([^)]*\))?:\s*(?P<text>.*)$")
_ARGUMENT_SECTIONS = {"Args", "Arguments", "Parameters"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DocText:
    """A docstring's text before its first section, and its ``Args:`` by name."""

    description: str = ""
    arguments: dict[str, str] = field(default_factory=dict[str, str])


def parse_docstring(doc: str | None) -> DocText:
    """Split a docstring. Text that is not in Google form is all description."""
    lines = inspect.cleandoc(doc or "").splitlines()
    start = next((index for index, line in enumerate(lines) if _SECTION.match(line)), len(lines))
    return DocText(description="\n".join(lines[:start]).strip(), arguments=_arguments(_argument_lines(lines[start:])))


def _argument_lines(lines: list[str]) -> list[str]:
    """The body of the ``Args:`` section, without its indentation."""
    body: list[str] = []
    inside = False
    for line in lines:
        if section := _SECTION.match(line):
            inside = section[1] in _ARGUMENT_SECTIONS
        elif inside:
            body.append(line)
    return inspect.cleandoc("\n" + "\n".join(body)).splitlines()


def _arguments(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    name = ""
    for line in lines:
        if started := _ARGUMENT.match(line):
            name = started["name"]
            found[name] = started["text"].strip()
        elif name and line.strip():
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found
