"""The arguments that a person gives to a call instead of the model's."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from ipaddress import IPv6Address
from typing import Any
from uuid import UUID

import pytest

from api_gateway.problems import MOST_PROBLEMS
from api_gateway.turns.arguments import argument_problems
from harness_worker.core.registration.registry import Registry
from harness_worker.core.registration.signature import inspect_function
from harness_worker.errors import ArgumentsInvalid


def test_arguments_for_a_tool_that_takes_none_are_named() -> None:
    """A person who edits a call reads which argument is too much, not what a schema of ``False`` allows."""
    (problem,) = argument_problems({"type": "object", "additionalProperties": False}, {"x": 1})
    assert "'x' was unexpected" in problem.msg


def test_argument_that_is_long_is_told_with_what_is_wrong_with_it() -> None:
    """The person knows the text, and needs the rule."""
    schema = {"type": "object", "properties": {"note": {"type": "string", "maxLength": 500}}}
    (problem,) = argument_problems(schema, {"note": "n" * 501})
    assert (problem.loc[-1], problem.msg) == ("note", "the value is longer than 500 characters")


def test_arguments_with_many_things_wrong_tell_the_first_of_them() -> None:
    """Each costs more to tell than to send, and all but one request would wait while they are listed."""
    schema = {"type": "object", "properties": {"ids": {"type": "array", "items": {"type": "string"}}}}
    some = argument_problems(schema, {"ids": [1] * 100})
    assert [each.loc for each in some] == [["body", "arguments", "ids", place] for place in range(MOST_PROBLEMS)]
    (one,) = argument_problems(schema, {"ids": [1] * 500_000})
    assert one == some[0]


def book(  # noqa: PLR0913 - one of each kind
    *,
    when: datetime | None = None,
    day: date | None = None,
    at: time | None = None,
    lasts: timedelta | None = None,
    key: UUID | None = None,
    host: IPv6Address | None = None,
    like: re.Pattern[str] | None = None,
) -> None:
    """A tool's function."""


@pytest.mark.parametrize(
    ("arguments", "fits"),
    [
        ({"when": "2026-12-01T10:00:00"}, True),
        ({"when": "2026-12-01T10:00:00+01:00"}, True),
        ({"when": "2026-12-01 10:00"}, True),
        ({"when": "tomorrow"}, False),
        ({"day": "2026-12-01"}, True),
        ({"day": "2026-13-01"}, False),
        ({"at": "09:30:00"}, True),
        ({"at": "09:30"}, True),
        ({"at": "noon"}, False),
        ({"lasts": "PT1.5S"}, True),
        ({"lasts": "-P1D"}, True),
        ({"lasts": "soon"}, False),
        ({"key": "12345678123456781234567812345678"}, True),
        ({"key": "1"}, False),
        ({"host": "fe80::1%eth0"}, True),
        ({"host": "here"}, False),
        ({"like": "(?P<word>a)"}, True),
        ({"like": "("}, False),
    ],
)
def test_person_may_say_what_a_model_may(arguments: dict[str, Any], fits: bool) -> None:
    """A value that a worker reads fits the published schema, as it was given and as it is shown; no other does."""
    tool = inspect_function(book, "book")
    assert (argument_problems(tool.schema, arguments) == []) is fits
    if fits:
        assert argument_problems(tool.schema, tool.bind(arguments).values) == []
    else:
        with pytest.raises(ArgumentsInvalid):
            tool.bind(arguments)


def test_person_may_say_what_a_model_may_to_a_tool_with_its_own_schema() -> None:
    """Its worker reads a format as a remark; a type it holds to."""
    schema = {"properties": {"to": {"type": "string", "format": "email"}}}
    registry = Registry()
    registry.add_tool(send, name="send", schema=schema, description="Sends.")
    tool, arguments = registry.tools["send"], {"to": "nobody"}
    assert tool.bind(arguments).values == arguments
    assert argument_problems(tool.schema, arguments, checks_formats=tool.checks_formats) == []
    assert argument_problems(tool.schema, {"to": 1}, checks_formats=tool.checks_formats) != []


def send(arguments: dict[str, object]) -> object:
    """A function of a tool that brings its own schema."""
    return arguments["to"]
