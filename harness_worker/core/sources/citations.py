"""What an answer cites of what the conversation was given: documents by their ids, web pages by their addresses.

Nothing is taken on the model's word: an id that is in no context pack, or an address that is in no tool's result, is
dropped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, cast

from harness_worker.core.canonical import parsed
from harness_worker.wire import GET_CONTEXT_PACK

MOST_OF_A_KIND: Final = 8
QUOTE_CHARS: Final = 200

_PUNCTUATION: Final = (
    r"\u00ab\u00bb\u2018-\u201f\u2026\u2039\u203a\u3001\u3002\u3008-\u3011\u3014-\u301f"
    r"\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f\uff5b-\uff64"
)
"""Quotation marks, and the punctuation of Chinese and Japanese, which put no space after an address."""

_MARK: Final = re.compile(rf"\[doc:(?P<id>[^\[\]\s]+)\]|(?P<url>https?://[^\s<>\"'`\\{{}}|\[\]{_PUNCTUATION}]+)")
_TRAILING: Final = ".,;:!?*_"
_TITLES: Final = ("title", "name")
_QUOTES: Final = ("snippet", "description", "summary", "text", "content")


class CitationKind(StrEnum):
    """The kind of a cited source."""

    LOCAL = "local"
    WEB = "web"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A document that may be cited by its id. ``quote``: its first characters."""

    id: str
    title: str
    source: str
    quote: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """One source that an answer cites.

    Args:
        kind: A document of the vault, or a web page.
        id: The passage's id, or the page's address.
        title: Its title.
        source: The document's path, or the page's address.
        quote: Its first characters, if they are known.
    """

    kind: CitationKind
    id: str
    title: str
    source: str
    quote: str | None = None


def excerpt(text: str) -> str:
    """The first characters of a text, on one line."""
    return " ".join(text.split())[:QUOTE_CHARS]


def cite(text: str, sources: Iterable[Source], messages: Sequence[Any]) -> tuple[Citation, ...]:
    """The sources that an answer cites, each once, in the order of first use; at most eight documents and eight pages.

    Args:
        text: The answer.
        sources: The documents that the conversation was given with its turns' words.
        messages: What was sent to the model: objects with ``role`` and ``content``, Anthropic-shaped.
    """
    marks = dict.fromkeys(_marks(text))
    if not marks:
        return ()
    results = tuple(_results(messages))
    known = _known_documents(sources, results) | _known_pages(
        results, (url for kind, url in marks if kind is CitationKind.WEB)
    )
    found = [known[mark] for mark in marks if mark in known]
    counts: Counter[CitationKind] = Counter()
    kept: list[Citation] = []
    for citation in found:
        counts[citation.kind] += 1
        kept += [citation] if counts[citation.kind] <= MOST_OF_A_KIND else []
    return tuple(kept)


def with_sources(text: str, citations: Sequence[Citation]) -> str:
    """An answer followed by a list of what it cites."""
    if not citations:
        return text
    lines = (f"- {each.title}: {each.id}" if each.title != each.id else f"- {each.id}" for each in citations)
    return "\n".join((text, "", "Sources:", *lines))


def _marks(text: str) -> Iterator[tuple[CitationKind, str]]:
    for found in _MARK.finditer(text):
        if found["id"] is not None:
            yield CitationKind.LOCAL, found["id"]
        else:
            yield CitationKind.WEB, _address(found["url"])


def _address(url: str) -> str:
    """An address found in prose, without the punctuation of the sentence around it."""
    url = url.rstrip(_TRAILING)
    while url.count("(") < url.count(")"):
        url = url[: url.rindex(")")].rstrip(_TRAILING)
    return url


def _known_documents(
    sources: Iterable[Source], results: Iterable[tuple[str, str]]
) -> dict[tuple[CitationKind, str], Citation]:
    asked_for = (source for tool, content in results if tool == GET_CONTEXT_PACK for source in _given(content))
    return {
        (CitationKind.LOCAL, each.id): Citation(
            kind=CitationKind.LOCAL, id=each.id, title=each.title, source=each.source, quote=each.quote
        )
        for each in (*sources, *asked_for)
    }


def _given(content: str) -> Iterator[Source]:
    """The documents in a result of ``get_context_pack``; none if another tool of that name gave the result."""
    for each in _objects(parsed(content)):
        named = [each.get(name) for name in ("id", "title", "source", "text")]
        if all(isinstance(value, str) for value in named):
            id_, title, source, text = cast("list[str]", named)
            yield Source(id=id_, title=title, source=source, quote=excerpt(text))


def _known_pages(results: Sequence[tuple[str, str]], urls: Iterable[str]) -> dict[tuple[CitationKind, str], Citation]:
    """The pages with what the first result that describes them says, or nothing if all only mention them."""
    wanted = set(urls)
    found: dict[tuple[CitationKind, str], Citation] = {}
    for tool, content in results:
        if not wanted or tool == GET_CONTEXT_PACK:
            continue
        here = wanted & {url for kind, url in _marks(_unescaped(content)) if kind is CitationKind.WEB}
        objects = tuple(_objects(parsed(content))) if here else ()
        pages = {(CitationKind.WEB, url): _page(url, objects) for url in here}
        described = {key: page for key, page in pages.items() if page.quote or page.title != page.id}
        found = pages | found | described
        wanted -= {url for _, url in described}
    return found


def _unescaped(content: str) -> str:
    """A result with its addresses as they are, though it is JSON of a writer that escapes some of their characters."""
    return content.replace(r"\/", "/").replace(r"\u0026", "&")


def _page(url: str, objects: Iterable[Mapping[str, Any]]) -> Citation:
    """A page with the title and the text that a result's objects give with its address."""
    about = next((each for each in objects if url in each.values()), dict[str, Any]())
    title, quote = _first_text(about, _TITLES), _first_text(about, _QUOTES)
    return Citation(kind=CitationKind.WEB, id=url, title=title or url, source=url, quote=quote)


def _first_text(about: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """The beginning of the first of these entries that is a text with words."""
    texts = (excerpt(about[name]) for name in names if isinstance(about.get(name), str))
    return next(filter(None, texts), None)


def _results(messages: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """The tool's name and the content of each result that is not an error; later messages may reuse tool_use ids."""
    names: dict[str, str] = {}
    for message in messages:
        content: object = message.content
        blocks = cast("list[Mapping[str, Any]]", content) if isinstance(content, list) else []
        for block in blocks:
            if block.get("type") == "tool_use":
                names[block["id"]] = block["name"]
            elif block.get("type") == "tool_result" and not block.get("is_error"):
                yield names.get(block["tool_use_id"], ""), str(block.get("content", ""))


def _objects(value: object) -> Iterator[Mapping[str, Any]]:
    """Every JSON object in a value, the outer ones first."""
    waiting = [value]
    while waiting:
        each = waiting.pop(0)
        if isinstance(each, dict):
            yield cast("dict[str, Any]", each)
            waiting += cast("dict[str, object]", each).values()
        elif isinstance(each, list):
            waiting += cast("list[object]", each)
