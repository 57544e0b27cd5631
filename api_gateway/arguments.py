"""Checking a person's arguments against a tool's published schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jsonschema_rs

from api_gateway.problems import FieldProblem
from harness_worker.wire import closed_schema

AT: Final = ("body", "arguments")
LONGEST: Final = 300


def argument_problems(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[FieldProblem]:
    """What does not fit, one entry a place; empty if all does."""
    validator = jsonschema_rs.validator_for(closed_schema(schema), offline=True, validate_formats=True)
    return [_problem(error) for error in validator.iter_errors(dict(arguments))]


def _problem(error: jsonschema_rs.ValidationError) -> FieldProblem:
    return FieldProblem(loc=[*AT, *error.instance_path], msg=error.message[:LONGEST])
