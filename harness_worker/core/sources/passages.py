"""Splitting a document into passages, which are found and cited separately."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import quote

from harness_worker.core.sources.context_pack import Passage

PASSAGE_CHARS: Final = 1_200

_HEADING: Final = re.compile(r"#{1,6}(?P<title>[ \t].*)?")
_CLOSING_SIGNS: Final = re.compile(r"[ \t]#+[ \t]*$")
_CODE_FENCE: Final = re.compile(r"[ \t]*(?P<fence>`{3,}(?=[^`]*$)|~{3,})(?P<after>.*)")
_BULLET: Final = re.compile(r"^[-*+]\s+")
_BLANK_LINES: Final = re.compile(r"\n\s*\n")


def passages_of(path: str, text: str) -> tuple[Passage, ...]:
    """The passages of a document, in order: one for each section, several for a long one.

    Args:
        path: The document's path within its vault, with slashes; a ``.txt`` file has no headings.
        text: The document's text.
    """
    name = PurePosixPath(path)
    sections = [(name.stem, text)] if name.suffix.lower() == ".txt" else _sections(name.stem, text)
    parts = ((title, part) for title, body in sections for part in _parts(body))
    return tuple(
        Passage(id=f"{quote(path)}#{number}", title=title, source=path, text=part)
        for number, (title, part) in enumerate(parts, 1)
    )


def listed(text: str) -> tuple[str, ...]:
    """The items of a text that is a list: its lines, without bullets and without headings."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(_BULLET.sub("", line) for line in lines if line.strip("-*+ ") and not line.startswith("#"))


def _sections(title: str, text: str) -> Iterator[tuple[str, str]]:
    """Headings with the text below them; a line of code that looks like a heading is not one."""
    lines: list[str] = []
    fence = ""
    for line in text.splitlines():
        fence = _fence_after(line, fence)
        heading = None if fence else _HEADING.fullmatch(line)
        if heading is None:
            lines.append(line)
            continue
        yield title, "\n".join(lines)
        title, lines = _CLOSING_SIGNS.sub("", heading["title"] or "").strip(" \t") or title, []
    yield title, "\n".join(lines)


def _fence_after(line: str, fence: str) -> str:
    """The fence of the code that goes on after a line; empty if none does. An equal or longer one ends it."""
    found = _CODE_FENCE.match(line)
    if found is None:
        return fence
    if not fence:
        return found["fence"]
    return "" if found["fence"].startswith(fence) and not found["after"].strip() else fence


def _parts(body: str) -> Iterator[str]:
    """The text in parts, each of as many paragraphs as fit."""
    part = ""
    for paragraph in filter(None, map(str.strip, _BLANK_LINES.split(body))):
        if part and len(part) + 2 + len(paragraph) > PASSAGE_CHARS:
            yield part
            part = ""
        part = f"{part}\n\n{paragraph}" if part else paragraph
        while len(part) > PASSAGE_CHARS:
            yield part[:PASSAGE_CHARS]
            part = part[PASSAGE_CHARS:]
    if part:
        yield part
