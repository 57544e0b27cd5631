"""What a docstring says of a tool and of its arguments."""

from __future__ import annotations

import pytest

from harness_worker.core.registration.docstrings import parse_docstring


def test_docstring_with_gaps_is_read() -> None:
    """A blank line among the arguments, or a word before the first, belongs to none."""
    doc = parse_docstring("Find.\n\nArgs:\n    oh\n    x: The x,\n\n        whole.\n")
    assert doc.arguments == {"x": "The x, whole."}


@pytest.mark.parametrize(
    "after",
    [
        "The customer must have agreed.\nTwice.",
        "Side Effects:\n    Sends a mail.",
        "Warning:\n    Cannot be undone.\n\nBe careful.",
        "Note:\nNothing is indented.",
    ],
)
def test_docstring_keeps_what_follows_its_arguments(after: str) -> None:
    """A section ends where its indentation does: what comes then, a section nobody knows included, is description."""
    doc = parse_docstring(f"Refund.\n\nArgs:\n  x: The x,\n     whole.\n\n{after}\n\nReturns:\n    It.\n\nLast.")
    assert doc.arguments == {"x": "The x, whole."}
    assert doc.description == f"Refund.\n\n{after}\n\nLast."


def test_docstring_may_have_several_sections_of_arguments() -> None:
    """Each has an indentation of its own."""
    doc = parse_docstring("Find.\n\nArgs:\n    x: The x.\n\nKeyword Args:\n  y (int): The y.\n")
    assert (doc.description, doc.arguments) == ("Find.", {"x": "The x.", "y": "The y."})


def test_docstring_may_have_types_with_brackets() -> None:
    """A type ends where its first bracket closes, so a sentence with brackets of its own begins no argument."""
    doc = parse_docstring(
        "Find.\n\nArgs:\n    x (int): The x (a number): it.\n    y (list(tuple(int, str))): The y,\n"
        "    gross (in EUR) or net (in USD): as asked.\n    z (one of '(', '['): The z.\n"
    )
    assert doc.arguments == {
        "x": "The x (a number): it.",
        "y": "The y, gross (in EUR) or net (in USD): as asked.",
        "z": "The z.",
    }


SPHINX = """Pay; see
:class:`Bank`.

:param cents: How much,
    in all.
:param str to: Whom.
:type cents: int
:returns: The number.

Only once.
:meta: kept
"""
NUMPY = """Pay; see
:class:`Bank`.

Parameters
----------
cents : int
    How much,

    in all.
to, by : str
    Whom.
*more

Returns
-------
str
    The number.

Never twice.

Side effects
------------
Only once.

Other Parameters
----------------
fee: int, default 0
    The bank's.

:meta: kept
"""


def test_docstring_of_sphinx_form_is_split() -> None:
    """Fields of parameters describe them, those of types, results and errors are left out, anything else is text."""
    doc = parse_docstring(SPHINX)
    assert doc.arguments == {"cents": "How much, in all.", "to": "Whom."}
    assert doc.description == "Pay; see\n:class:`Bank`.\n\nOnly once.\n:meta: kept"


def test_docstring_of_numpy_form_is_split() -> None:
    """Underlined sections of parameters describe them; a section nobody knows, or what is no parameter, is text."""
    doc = parse_docstring(NUMPY)
    whom = {"to": "Whom.", "by": "Whom."}
    assert doc.arguments == {"cents": "How much, in all.", **whom, "*more": "", "fee": "The bank's."}
    assert (
        doc.description
        == "Pay; see\n:class:`Bank`.\n\nNever twice.\n\nSide effects\n------------\nOnly once.\n\n:meta: kept"
    )


@pytest.mark.parametrize(
    "text", ["Title\n-----\nText: a\n\n- b", "Parameters\n\n----------\na : b", ":param: x", "Args:\n\nx"]
)
def test_docstring_of_no_form_is_all_description(text: str) -> None:
    """A heading, a rule or a field without a name says nothing of arguments."""
    doc = parse_docstring(text)
    assert (doc.description, doc.arguments) == (text, {})
