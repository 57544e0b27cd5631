"""What the worker and the gateway both accept of what they are given, and how they say what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

MAX_METADATA_PAIRS: Final = 16
MAX_METADATA_CHARS: Final = 512
"""The maximum length of a key or a value, in characters."""
MAX_SESSION_ID_CHARS: Final = 255

_OF_TYPES: Final = {
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "Input should be an object"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), "Input should be a list"),
    "none_required": "Input should be null",
}
_IN_JSON: Final = {"Dictionary": "Object", "Tuple": "List", "Set": "List", "Frozenset": "List"}
_OF_PYTHON: Final = re.compile(f"^({'|'.join(_IN_JSON)})(?= should have )")


def complaint(error: Mapping[str, Any]) -> str:
    """What pydantic says is wrong with a value, in words for those who know JSON, and not Python.

    Args:
        error: One of the errors of a ``ValidationError``.
    """
    said = _OF_TYPES.get(error["type"]) or str(error["msg"]).removeprefix("Value error, ")
    return _OF_PYTHON.sub(lambda found: _IN_JSON[found[0]], said)


def storable(text: str) -> str:
    """``text``, if every database can store it.

    Raises:
        ValueError: Some database cannot; the message says why.
    """
    if "\0" in text:
        raise ValueError("must not contain the character U+0000")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must not contain a lone surrogate") from None
    return text


_OPENING_KEYWORDS: Final = frozenset(
    {
        "additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames", "dependentSchemas",
        "allOf", "anyOf", "oneOf", "if", "$ref", "$dynamicRef",
    }
)  # fmt: skip
"""A schema with one of these keywords says itself which further properties it accepts."""


def closed_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's published schema as it is enforced: one that lists properties and is silent on others allows none.

    It has ``properties`` even if they are none, because without them the validator does not name what is not allowed.
    """
    is_open = "properties" not in schema or not _OPENING_KEYWORDS.isdisjoint(schema) or _depends_on_schemas(schema)
    return {"properties": {}, **schema} if is_open else {**schema, "additionalProperties": False}


def _depends_on_schemas(schema: Mapping[str, Any]) -> bool:
    """Whether it has schemas in ``dependencies``, as ``dependentSchemas`` was called; lists there only require."""
    given: object = schema.get("dependencies")
    return isinstance(given, Mapping) and any(
        isinstance(each, Mapping) for each in cast("Mapping[str, object]", given).values()
    )
