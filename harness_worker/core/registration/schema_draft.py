"""Translates JSON Schemas of older drafts into draft 2020-12.

Authors and MCP servers use any draft, and a call's arguments are checked by it; Claude accepts draft 2020-12 only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import unquote

import jsonschema_rs

from harness_worker.core.registration.problems import place, short

_DRAFT: Final = {"$schema": "https://json-schema.org/draft/2020-12/schema"}

_HOLD_SCHEMAS: Final = frozenset(
    {
        "additionalItems", "additionalProperties", "allOf", "anyOf", "contains", "contentSchema", "else", "if", "items",
        "not", "oneOf", "prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
    }
)  # fmt: skip
"""Keywords that hold a schema or a list of schemas. What others hold, such as ``enum`` or ``default``, is data."""

_NAME_SCHEMAS: Final = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)
"""Keywords that hold schemas by name."""

_OF_TUPLES: Final[Mapping[str, str]] = {"items": "prefixItems", "additionalItems": "items"}
"""The new names of keywords in a schema whose ``items`` is a list."""

_BOUNDS: Final = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))


def in_2020_12(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema in draft 2020-12, as far as an older one can be translated.

    A schema that is already valid there, and does not declare draft 4, stays the same to the byte, because providers
    cache what they were sent before.
    """
    if "draft-04" not in str(schema.get("$schema")) and problem_in_2020_12(schema) is None:
        return schema
    return cast("Mapping[str, Any]", _rewritten(schema, schema))


def problem_in_2020_12(schema: Mapping[str, Any]) -> str | None:
    """Why the schema is not valid in draft 2020-12, whatever draft it declares; ``None`` if it is valid."""
    try:
        jsonschema_rs.meta.validate({**schema, **_DRAFT})
    except jsonschema_rs.ValidationError as error:
        return f"{place(list(error.instance_path))}: {short(error.message)}"
    return None


def _rewritten(schema: object, root: Mapping[str, Any]) -> object:
    if not isinstance(schema, Mapping):
        return schema
    given = cast("Mapping[str, object]", schema)
    names = _names(given)
    return _with_bounds(
        {names.get(word, word): _rule(word, rule, root) for word, rule in given.items() if word != "$schema"}
    )


def _names(schema: object) -> Mapping[str, str]:
    """The schema's keywords that have new names."""
    items = cast("Mapping[str, object]", schema).get("items") if isinstance(schema, Mapping) else None
    return _OF_TUPLES if isinstance(items, list) else {}


def _rule(word: str, rule: object, root: Mapping[str, Any]) -> object:
    """A keyword's value, translated where it holds schemas."""
    if word == "$ref" and isinstance(rule, str):
        return _moved(rule, root)
    if word in _NAME_SCHEMAS and isinstance(rule, Mapping):
        return {name: _rewritten(each, root) for name, each in cast("Mapping[str, object]", rule).items()}
    if word in _HOLD_SCHEMAS:
        many = isinstance(rule, list)
        return [_rewritten(each, root) for each in cast("list[object]", rule)] if many else _rewritten(rule, root)
    return rule


def _with_bounds(schema: dict[str, object]) -> dict[str, object]:
    """The schema with draft 4's flags for exclusive bounds replaced by the keywords that now hold such bounds."""
    for exclusive, bound in _BOUNDS:
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and bound in schema:
            schema[exclusive] = schema.pop(bound)
    return schema


def _moved(reference: str, root: Mapping[str, Any]) -> str:
    """A reference into the schema, with renamed keywords; zod refers to a type's first use, which may be in a tuple."""
    at: object = root
    start, *steps = reference.split("/")
    for number, step in enumerate(steps if start == "#" else ()):
        steps[number] = _names(at).get(step, step)
        at = _below(at, unquote(step).replace("~1", "/").replace("~0", "~"))
    return "/".join([start, *steps])


def _below(value: object, step: str) -> object:
    if isinstance(value, Mapping):
        return cast("Mapping[str, object]", value).get(step)
    items = cast("list[object]", value) if isinstance(value, list) else []
    return items[int(step)] if step.isdecimal() and int(step) < len(items) else None
