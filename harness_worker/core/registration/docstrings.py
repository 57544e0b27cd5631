"""Parses docstrings in Google, NumPy or Sphinx form into what a model reads: a description and a line per argument."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

_ARGUMENT_SECTIONS = {"Args", "Arguments", "Keyword Args", "Keyword Arguments", "Parameters", "Other Parameters"}
_OTHER_SECTIONS = {"Returns", "Yields", "Raises", "Example", "Examples", "Note", "Notes"}
_RESULT_SECTIONS = {"Returns", "Yields", "Raises"}
_TYPE = r"\((?:\((?:\([^()]*\)|[^()])*\)|[^)])*\)"
"""A type in brackets, which may have brackets within brackets of its own."""

_ARGUMENT = re.compile(rf"^(?P<name>\*{{0,2}}\w+)\s*(?:{_TYPE})?:\s*(?P<text>.*)$")

_UNDERLINE = re.compile(r"^-{3,}\s*$")
_NUMPY_ARGUMENT = re.compile(r"^(?P<names>\*{0,2}\w+(, ?\*{0,2}\w+)*)\s*(:.*)?$")

_FIELD = re.compile(r"^:(?P<kind>\w+)(?:\s+(?P<about>[^:]+))?:\s*(?P<text>.*)$")
_ARGUMENT_FIELDS = {"param", "parameter", "arg", "argument", "key", "keyword"}
_OTHER_FIELDS = {"type", "return", "returns", "rtype", "raise", "raises", "except", "exception", "yield", "yields"}

_Told: TypeAlias = dict[str, str] | None
"""Argument descriptions by name, empty for another known part of a docstring; ``None`` for plain text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocText:
    """A docstring's text without its known sections, and its descriptions of arguments by name."""

    description: str
    arguments: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """A line at the margin, with the blank and indented lines below it."""

    head: str
    body: tuple[str, ...] = ()

    @property
    def below(self) -> str:
        """The indented lines joined into one."""
        return " ".join(" ".join(self.body).split())


def parse_docstring(doc: str | None) -> DocText:
    """Split a docstring. All text outside of known sections is the description."""
    text: list[str] = []
    arguments: dict[str, str] = {}
    for block, told in _read(_blocks(inspect.cleandoc(doc or "").splitlines())):
        if told is None:
            text += (block.head, *block.body)
        else:
            arguments |= told
    return DocText(description="\n".join(text).strip(), arguments=arguments)


def _blocks(lines: Iterable[str]) -> list[_Block]:
    found: list[list[str]] = []
    for line in lines:
        if found and (not line or line[0].isspace()):
            found[-1].append(line)
        else:
            found.append([line])
    return [_Block(head=head, body=tuple(body)) for head, *body in found]


def _read(blocks: Iterable[_Block]) -> Iterator[tuple[_Block, _Told]]:
    """Each block with the arguments that it describes, read by the rules of the NumPy section that it is in, if any."""
    section = ""
    told: _Told
    is_apart = False
    for block, after in pairwise((*blocks, _Block(head=""))):
        if _UNDERLINE.match(after.head) and not block.body:
            section = _known(block.head)
            told = {} if section else None
        else:
            told = _in_numpy_section(block, section, is_apart=is_apart) if section else None
            section = "" if told is None else section
        is_apart = block.body[-1:] == ("",)
        yield block, _by_itself(block) if told is None else told


def _known(title: str) -> str:
    title = title.strip()
    return title if title in _ARGUMENT_SECTIONS | _OTHER_SECTIONS else ""


def _in_numpy_section(block: _Block, section: str, *, is_apart: bool) -> _Told:
    if section in _RESULT_SECTIONS and is_apart and not block.below and not _UNDERLINE.match(block.head):
        return None  # a paragraph after the results
    if section in _OTHER_SECTIONS or _UNDERLINE.match(block.head):
        return {}
    entry = _NUMPY_ARGUMENT.match(block.head)
    return None if entry is None else {name.strip(): block.below for name in entry["names"].split(",")}


def _by_itself(block: _Block) -> _Told:
    """The arguments described by a field of Sphinx form or a section of Google form."""
    known_field = _FIELD.match(block.head)
    return _google_section(block) if known_field is None else _field(block, known_field)


def _field(block: _Block, start: re.Match[str]) -> _Told:
    if start["kind"] in _ARGUMENT_FIELDS and start["about"]:
        return {start["about"].split()[-1]: f"{start['text']} {block.below}".strip()}
    return {} if start["kind"] in _OTHER_FIELDS else None


def _google_section(block: _Block) -> _Told:
    """The arguments described by a Google section; a title with nothing below it is plain text."""
    head = block.head.rstrip()
    section = _known(head[:-1]) if head.endswith(":") and block.below else ""
    if section in _ARGUMENT_SECTIONS:
        return _arguments(textwrap.dedent("\n".join(block.body)).splitlines())
    return {} if section else None


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
