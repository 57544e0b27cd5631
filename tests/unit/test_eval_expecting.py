"""Holding turns against an expectation."""

from __future__ import annotations

from typing import Any

import pytest

from harness_worker.evaluation.expecting import unmet
from tests.unit.eval_kit import call, case, score, turn


def why(expect: dict[str, Any], *turns: Any) -> list[str]:  # noqa: ANN401 - JSON
    """What does not hold."""
    return list(unmet(case(expect=expect).expect, turns))


@pytest.mark.parametrize(
    ("expect", "answer", "told"),
    [
        ({}, "anything", None),
        ({"equals": "It is late."}, "\nIt is late.  ", None),
        ({"equals": "It is late."}, "it is late.", "the answer is not 'It is late.'"),
        ({"contains": ["FRIDAY", "straße"]}, "On Friday, in the STRASSE.", None),
        ({"contains": ["Friday", "noon"]}, "On Friday.", "the answer does not contain 'noon'"),
        ({"not_contains": "sorry"}, "Sorry!", "the answer contains 'sorry'"),
        ({"not_contains": "sorry"}, "Here.", None),
        ({"matches": r"\b\d{4}\b"}, "Order 1042 is late.", None),
        ({"matches": r"^\d{4}$"}, "Order 1042", "the answer does not match '^\\\\d{4}$'"),
        ({"matches": "late"}, "LATE", "the answer does not match 'late'"),
        ({"matches": "(?i)late"}, "LATE", None),
    ],
)
def test_answers(expect: dict[str, Any], answer: str, told: str | None) -> None:
    """Whitespace around an answer, and case for what it contains, are no matter; a pattern says itself what is."""
    assert why(expect, turn(answer)) == ([told] if told else [])


@pytest.mark.parametrize(
    ("expect", "holds"),
    [
        ({"calls": "find"}, True),
        ({"calls": ["find", "put"]}, True),
        ({"calls": {"tool": "put", "arguments": {"order": {"id": 7}}}}, True),
        ({"calls": {"tool": "put", "arguments": {"order": {"id": 7}, "n": 1.0}}}, True),
        ({"calls": {"tool": "put", "arguments": {"order": {"id": 8}}}}, False),
        ({"calls": {"tool": "put", "arguments": {"order": {"id": 7, "more": None}}}}, False),
        ({"calls": {"tool": "put", "arguments": {"n": True}}}, False),
        ({"calls": {"tool": "put", "arguments": {"flags": [True, 0.0]}}}, True),
        ({"calls": {"tool": "put", "arguments": {"flags": [1, 0]}}}, False),
        ({"calls": {"tool": "put", "arguments": {"order": 7}}}, False),
        ({"calls": "fail"}, False),
        ({"calls": "open"}, False),
        ({"calls": "send"}, False),
        ({"no_calls": "send"}, True),
        ({"no_calls": ["fail"]}, False),
    ],
)
def test_calls(expect: dict[str, Any], holds: bool) -> None:
    """Of all turns of a case: success counts for what must be called, asking counts for what must not."""
    first = turn("", call("find"), call("fail", is_error=True, outcome="ToolFailure"))
    last = turn("", call("put", order={"id": 7, "name": "x"}, n=1, flags=[True, 0]), call("open", outcome=None))
    assert (why(expect, first, last) == []) is holds


def test_arguments_are_told() -> None:
    """Who reads a failure sees which call was missed."""
    assert why({"calls": {"tool": "put", "arguments": {"n": 1}}}, turn()) == [
        """put was not called with success with '{"n":1}'"""
    ]


def test_call_that_is_named_twice_was_made_twice() -> None:
    """Two different ones may be the same call."""
    put = {"tool": "put", "arguments": {"n": 1}}
    once, twice = turn("", call("put", n=1)), turn("", call("put", n=1), call("put", n=1))
    assert why({"calls": ["put", put]}, once) == []
    assert why({"calls": [put, put]}, twice) == []
    assert why({"calls": ["put", put, put, "put"]}, once) == [
        "put was called with success 1 of 2 times",
        """put was called with success 1 of 2 times with '{"n":1}'""",
    ]


def test_call_is_the_same_however_its_arguments_are_written() -> None:
    """Neither the order of the arguments nor the notation of a number makes another call of it."""
    calls = [{"tool": "put", "arguments": {"n": 1, "to": "a"}}, {"tool": "put", "arguments": {"to": "a", "n": 1.0}}]
    (told,) = why({"calls": calls}, turn("", call("put", n=1, to="a")))
    assert told.startswith("put was called with success 1 of 2 times")


@pytest.mark.parametrize(
    ("expect", "ended", "told"),
    [
        ({}, ("incomplete", "budget"), ["the turn ended as incomplete (budget)"]),
        ({"stop_reason": "budget"}, ("incomplete", "budget"), []),
        (
            {"stop_reason": "budget"},
            ("completed", "end_turn"),
            ["the turn ended as completed (end_turn), and not by budget"],
        ),
        ({"equals": "Hello."}, ("failed", "model_error"), ["the turn ended as failed (model_error)"]),
    ],
)
def test_ends(expect: dict[str, Any], ended: tuple[str, str], told: list[str]) -> None:
    """A turn must be completed, whatever it said, unless another end was expected."""
    status, stop_reason = ended
    assert why(expect, turn(status=status, stop_reason=stop_reason)) == told


def test_end_tells_its_error() -> None:
    """The error is told as the turn has it."""
    failed = turn(status="failed", stop_reason="model_error", error={"code": "model_error", "message": "no key"})
    assert why({}, failed) == ["the turn ended as failed (model_error): no key"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([score("relevance", 0.8)], []),
        ([score("relevance", 0.79)], ["relevance scored 0.79, below 0.8"]),
        ([score("relevance", None, error="it raised")], ["relevance gave no score: it raised"]),
        ([score("relevance", None, at=None)], ["relevance gave no score: it is still due"]),
        ([score("other", 1.0)], ["no judge relevance scored the turn"]),
    ],
)
def test_scores(given: list[Any], told: list[str]) -> None:
    """A judge's word that is missing is not a good one."""
    assert why({"scores": {"relevance": 0.8}}, turn(scores=given)) == told
