"""Checking a person's arguments against a tool's published schema."""

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
from harness_worker.wire import closed_schema

AT: Final = ("body", "arguments")
LONGEST: Final = 300
LONG: Final = 20_000
"""Characters of arguments of which only the first thing that is wrong is told: each costs more to tell than to send."""

_READ_AS: Final[Mapping[str, Any]] = {
    "date": date,
    "date-time": datetime,
    "time": time,
    "duration": timedelta,
    "uuid": UUID,
    "ipv6": IPv6Address,
    "regex": Pattern[str],
}
"""The formats that workers read more widely than JSON Schema: a time may lack its zone, a duration be in fractions."""


def argument_problems(
    schema: Mapping[str, Any], arguments: Mapping[str, Any], *, checks_formats: bool = True
) -> list[FieldProblem]:
    """What does not fit, the first of it, one entry a place; empty if all does. What a worker takes of a model fits.

    Args:
        schema: As the tool's worker published it.
        arguments: What the person gave.
        checks_formats: Whether that worker holds texts to their ``format``.
    """
    validator = jsonschema_rs.validator_for(
        closed_schema(schema), offline=True, validate_formats=checks_formats, formats=_FORMATS
    )
    try:
        validator.validate(dict(arguments))
    except jsonschema_rs.ValidationError as first:
        is_long = len(json.dumps(arguments)) > LONG
        errors = [first] if is_long else list(validator.iter_errors(dict(arguments)))  # makes all of them at once
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
