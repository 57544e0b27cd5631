"""A document in parts."""

from __future__ import annotations

from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_worker.core.sources.passages import PASSAGE_CHARS, listed, passages_of

GUIDE = """Before.

# Refunds ##

Within 30 days.
```sh
# no heading
```

## Late ones

After that: ask.
"""


def test_passages_are_sections_under_their_headings() -> None:
    """What stands before the first heading has the document's name; a comment in code is no heading."""
    found = passages_of("help/guide.md", GUIDE)
    assert [(each.id, each.title, each.text) for each in found] == [
        ("help/guide.md#1", "guide", "Before."),
        ("help/guide.md#2", "Refunds", "Within 30 days.\n```sh\n# no heading\n```"),
        ("help/guide.md#3", "Late ones", "After that: ask."),
    ]
    assert {each.source for each in found} == {"help/guide.md"}


def test_heading_keeps_the_signs_of_its_title() -> None:
    """Only those after a blank close it; one that is nothing else begins a section without a title of its own."""
    found = passages_of("a.md", "# C#\n\n1\n\n## F# ##\n\n2\n\n## ##\n\n3\n\n#4")
    assert [(each.title, each.text) for each in found] == [("C#", "1"), ("F#", "2"), ("F#", "3\n\n#4")]


def test_heading_with_a_wide_gap_is_read_at_once() -> None:
    """Its length is all that reading it takes time for: until it is read, no other thread of the process runs."""
    began = thread_time()
    (found,) = passages_of("a.md", f"# a{' ' * 2_000}b\n\nx")
    assert (found.title, found.text) == (f"a{' ' * 2_000}b", "x")
    assert thread_time() - began < 1


def test_code_within_a_line_hides_no_heading() -> None:
    """Backticks with others behind them in their line are no fence, whose end would have to come."""
    found = passages_of("a.md", "To build:\n\n```make``` alone\n\n# Next\n\nx")
    assert [each.title for each in found] == ["a", "Next"]


@pytest.mark.parametrize("inner", ["```sh\n# code\n```", "~~~\n# code\n~~~", "```"])
def test_code_ends_where_a_fence_like_its_first_does(inner: str) -> None:
    """Shorter ones and those of other signs are lines of the code, as in an example of Markdown."""
    (shown, last) = passages_of("a.md", f"````md\n{inner}\n# code\n````\n\n# Last\n\nx")
    assert (shown.title, shown.text) == ("a", f"````md\n{inner}\n# code\n````")
    assert last.title == "Last"


def test_plain_text_has_no_headings() -> None:
    """A line that begins with a number sign is text."""
    (found,) = passages_of("notes.TXT", "# 1 is the first\n\nand 2 the second")
    assert (found.title, found.text) == ("notes", "# 1 is the first\n\nand 2 the second")


@given(st.lists(st.text(alphabet="ab \n", max_size=3 * PASSAGE_CHARS)), st.sampled_from(["a.txt", "a.md"]))
def test_passages_are_short_and_lose_nothing(paragraphs: list[str], path: str) -> None:
    """Each is at most 1,200 characters, none is empty, and together they have every letter in order."""
    text = "\n\n".join(paragraphs)
    found = passages_of(path, text)
    assert all(0 < len(each.text) <= PASSAGE_CHARS for each in found)
    assert "".join("".join(each.text for each in found).split()) == "".join(text.split())


def test_ids_can_be_cited_whatever_the_file_is_called() -> None:
    """No blank, bracket or other sign that a citation could end with."""
    (found,) = passages_of("my [old] notes & more.md", "x")
    assert (found.id, found.source) == ("my%20%5Bold%5D%20notes%20%26%20more.md#1", "my [old] notes & more.md")


def test_list_is_its_items() -> None:
    """Bullets, blank lines, rules and headings are left out."""
    assert listed("# Likes\n\n- tea\n* milk\n+ \nplain\n---\n") == ("tea", "milk", "plain")


def test_signs_that_are_no_bullet_belong_to_their_item() -> None:
    """Only one that a blank follows is a bullet."""
    assert listed("- **Tone**: formal\n**Short** answers\n-5 °C is cold\n") == (
        "**Tone**: formal",
        "**Short** answers",
        "-5 °C is cold",
    )
