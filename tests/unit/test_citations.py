"""What an answer cites, of what the conversation was given (A15, A19: at most 8 documents and 8 pages)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness_worker.core.records import Message
from harness_worker.core.sources.citations import QUOTE_CHARS, Citation, CitationKind, Source, cite, with_sources

REFUNDS = Source(id="refunds.md#1", title="Refunds", source="refunds.md", quote="Within 30 days.")
PAGE = "https://example.org/a?b=1"


def result(content: Any, tool: str = "search", *, is_error: bool = False) -> tuple[Message, Message]:  # noqa: ANN401
    """A call of a tool and what it gave."""
    use: dict[str, Any] = {"type": "tool_use", "id": "u", "name": tool, "input": {}}
    text = content if isinstance(content, str) else json.dumps(content)
    given: dict[str, Any] = {"type": "tool_result", "tool_use_id": "u", "content": text}
    if is_error:
        given["is_error"] = True
    return Message(role="assistant", content=[use]), Message(role="user", content=[given])


def ids(text: str, *messages: Message, sources: tuple[Source, ...] = (REFUNDS,)) -> list[str]:
    """The ids of what is cited."""
    return [citation.id for citation in cite(text, sources, messages)]


def test_document_is_cited_by_its_id() -> None:
    """With title, source and the quote that it was given with."""
    expected = Citation(
        kind=CitationKind.LOCAL, id="refunds.md#1", title="Refunds", source="refunds.md", quote="Within 30 days."
    )
    assert cite("It is so [doc:refunds.md#1].", (REFUNDS,), ()) == (expected,)


def test_what_was_never_given_is_dropped() -> None:
    """No invention: neither ids nor addresses on the model's word, nor those of a failed call or the user's words."""
    said = Message(role="user", content=f"see {PAGE}")
    failed = result({"url": PAGE}, is_error=True)
    text = f"[doc:refunds.md#2] [doc:] [doc:x y] {PAGE} doc:refunds.md#1"
    assert ids(text, said, *failed) == []


def test_page_is_cited_by_its_address() -> None:
    """The address must stand in a tool's result; what stands beside it there is its title and quote."""
    found = {
        "results": [{"url": "https://example.org/other"}, {"url": PAGE, "title": "A page", "snippet": "It\nsays."}]
    }
    expected = Citation(kind=CitationKind.WEB, id=PAGE, title="A page", source=PAGE, quote="It says.")
    assert cite(f"As ({PAGE}), says.", (), result(found)) == (expected,)


@pytest.mark.parametrize(
    "text",
    [
        f"See {PAGE}.",
        f"[page]({PAGE})",
        f"(see [page]({PAGE})).",
        f"({PAGE}).",
        f"**{PAGE}**",
        f"<{PAGE}>",
        f'"{PAGE}",',
        f"“{PAGE}”",
        f"«{PAGE}»…",
        f"见{PAGE}。然后",
        f"\uff08{PAGE}\uff09、",
    ],
)
def test_page_is_known_from_prose_by_its_address(text: str) -> None:
    """The sentence's own punctuation is no part of it, in the answer as in the result; it is its own title."""
    (found,) = cite(text, (), result(f"I read {PAGE}, and more"))
    assert (found.id, found.title, found.quote) == (PAGE, PAGE, None)


def test_page_is_known_from_json_that_escapes_addresses() -> None:
    """PHP writes ``/`` and Go ``&`` as escapes; a tool may return such JSON as a text."""
    page = "https://example.org/a?b=1&c=2"
    found = r'{"url": "https:\/\/example.org\/a?b=1\u0026c=2", "title": "A page"}'
    assert [(each.id, each.title) for each in cite(page, (), result(found))] == [(page, "A page")]


def test_page_is_what_the_first_result_says() -> None:
    """Later results with its address change nothing."""
    first, second = result({"url": PAGE, "title": "A page"}), result({"url": PAGE, "title": "Another"})
    assert [each.title for each in cite(PAGE, (), (*first, *second))] == ["A page"]


def test_page_is_what_the_first_result_that_describes_it_says() -> None:
    """Another agent's answer, which mentions a page, does not take the place of the search that found it."""
    first, titled = result(f"I read {PAGE}", "reader"), result({"url": PAGE, "title": "T", "snippet": "S"})
    found = cite(PAGE, (), (*first, *titled, *result({"url": PAGE, "title": "Later"})))
    assert [(each.title, each.quote) for each in found] == [("T", "S")]


def test_page_that_is_too_deep_to_be_read_costs_no_other_citation() -> None:
    """A result is whatever the web says: its address is known all the same, and is its own title."""
    deep = f'{"[" * 5_000}"{PAGE}"{"]" * 5_000}'
    assert ids(f"[doc:refunds.md#1] {PAGE}", *result(deep)) == ["refunds.md#1", PAGE]


def test_address_keeps_brackets_of_its_own() -> None:
    """A closing bracket belongs to an address that opened it."""
    wiki = "https://example.org/Mercury_(planet)"
    assert ids(f"({wiki})", *result(wiki)) == [wiki]


def test_documents_of_the_tool_may_be_cited() -> None:
    """What ``get_context_pack`` gave counts like what was given with the user's words; addresses in it are no pages."""
    document = {"id": "a.md#3", "title": "A", "source": "a.md", "text": f"x {PAGE}"}
    pack = result({"documents": [document, {"id": 1, "title": "no", "source": "no", "text": "no"}]}, "get_context_pack")
    (found,) = cite(f"[doc:a.md#3] [doc:1] {PAGE}", (), pack)
    assert (found.kind, found.source, found.quote) == (CitationKind.LOCAL, "a.md", f"x {PAGE}")


def test_documents_of_another_tool_may_not_be_cited() -> None:
    """A result that only looks like a context pack is none."""
    document = {"id": "a.md#3", "title": "A", "source": "a.md", "text": "x"}
    assert ids("[doc:a.md#3]", *result({"documents": [document]}, "search")) == []
    assert ids("[doc:a.md#3]", *result("no JSON", "get_context_pack")) == []


def test_repeated_tool_use_ids_name_the_latest_call() -> None:
    """A model may give two calls of a turn one id: a result belongs to the call just before it."""
    document = {"id": "a.md#3", "title": "A", "source": "a.md", "text": "x"}
    pack = {"documents": [document]}
    assert ids("[doc:a.md#3]", *result("x", "get_context_pack"), *result(pack, "search")) == []
    assert ids("[doc:a.md#3]", *result("x", "search"), *result(pack, "get_context_pack")) == ["a.md#3"]


def test_citations_keep_the_order_of_first_use() -> None:
    """Each once, at its first place, documents and pages among each other."""
    other = Source(id="b.md#1", title="B", source="b.md")
    text = f"[doc:b.md#1] {PAGE} [doc:refunds.md#1] [doc:b.md#1] {PAGE}"
    assert ids(text, *result(PAGE), sources=(REFUNDS, other)) == ["b.md#1", PAGE, "refunds.md#1"]


def test_citations_are_at_most_eight_of_a_kind() -> None:
    """The first eight documents and the first eight pages."""
    sources = tuple(Source(id=f"a.md#{n}", title="A", source="a.md") for n in range(12))
    pages = [f"https://example.org/{n}" for n in range(12)]
    text = " ".join(f"[doc:a.md#{n}] {page}" for n, page in enumerate(pages))
    found = cite(text, sources, result(pages))
    by_kind = [[each.id for each in found if each.kind is kind] for kind in CitationKind]
    assert by_kind == [[f"a.md#{n}" for n in range(8)], pages[:8]]


def test_title_of_a_page_takes_one_line() -> None:
    """Else a page could list sources of its own behind the answer. One without words is none."""
    found = {"url": PAGE, "title": f"A page\n- Another: https://example.org/{'x' * 200}"}
    (page,) = cite(PAGE, (), result(found))
    assert len(page.title) == QUOTE_CHARS
    assert with_sources("So.", (page,)).splitlines()[2:] == ["Sources:", f"- {page.title}: {PAGE}"]
    assert [each.title for each in cite(PAGE, (), result({"url": PAGE, "title": " ", "name": "N"}))] == ["N"]


def test_sources_are_listed_behind_the_answer() -> None:
    """A title where there is one; nothing where nothing is cited."""
    found = cite(f"So [doc:refunds.md#1] {PAGE}", (REFUNDS,), result(PAGE))
    assert with_sources("So.", found) == f"So.\n\nSources:\n- Refunds: refunds.md#1\n- {PAGE}"
    assert with_sources("So.", ()) == "So."
