"""Checks arguments that a person edited against the tool's published schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from functools import partial
from ipaddress import IPv6Address
from re import Pattern
from typing import Any, Final
from uuid import UUID

import jsonschema_rs
from pydantic import TypeAdapter, ValidationError

from api_gateway.problems import MOST_PROBLEMS, FieldProblem
from harness_worker.validation import closed_schema

AT: Final = ("body", "arguments")
NAMED: Final = "the value"
"""What a wrong value is called: its text may be long."""

LONGEST: Final = 300
LONG: Final = 20_000
"""Arguments of more characters get only their first problem reported: each costs more to report than to send."""

_READ_AS: Final[Mapping[str, Any]] = {
    "date": date,
    "date-time": datetime,
    "time": time,
    "duration": timedelta,
    "uuid": UUID,
    "ipv6": IPv6Address,
    "regex": Pattern[str],
}
"""Formats that workers read more leniently than JSON Schema: a time may lack its zone, a duration have fractions."""


def argument_problems(
    schema: Mapping[str, Any], arguments: Mapping[str, Any], *, checks_formats: bool = True
) -> list[FieldProblem]:
    """The first problems of the arguments, one for each place; empty if a worker would accept them from a model.

    Args:
        schema: The schema that the tool's worker published.
        arguments: The edited arguments.
        checks_formats: Whether that worker checks the ``format`` of texts.
    """
    validator = jsonschema_rs.validator_for(
        closed_schema(schema), offline=True, validate_formats=checks_formats, formats=_FORMATS, mask=NAMED
    )
    try:
        validator.validate(dict(arguments))
    except jsonschema_rs.ValidationError as first:
        is_long = len(json.dumps(arguments)) > LONG
        errors = [first] if is_long else list(validator.iter_errors(dict(arguments)))  # finds all of them at once
        return [_problem(error) for error in errors[:MOST_PROBLEMS]]
    return []


def _problem(error: jsonschema_rs.ValidationError) -> FieldProblem:
    return FieldProblem(loc=[*AT, *error.instance_path], msg=error.message[:LONGEST])


def _is_read(adapter: TypeAdapter[Any], text: str) -> bool:
    try:
        adapter.validate_python(text)
    except ValidationError:
        return False
    return True


_FORMATS: Final[dict[str, Callable[[str], bool]]] = {
    name: partial(_is_read, TypeAdapter[Any](read_as)) for name, read_as in _READ_AS.items()
}
