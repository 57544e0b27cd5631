"""Puts sets into a fixed order: pydantic writes a set in the order of its process, which differs between processes."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias, cast

from pydantic import BaseModel, RootModel

from harness_worker.core.canonical import canonical
from harness_worker.core.registration.author_code import Raised, attempt

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None


def sort_sets(value: object, plain: Json) -> Json:
    """``plain``, the JSON that pydantic made of ``value``, with each set in it sorted.

    Values written by a serialiser of the author's stay as they are, and so do values that cannot be inspected.
    """
    found = attempt(_sorted, value, plain)  # attributes may be the author's code
    return plain if isinstance(found, Raised) else found


def _sorted(value: object, plain: Json) -> Json:
    if isinstance(value, RootModel):
        return _sorted(cast("RootModel[object]", value).root, plain)
    if isinstance(plain, dict):
        inner = _entries(value, plain)
        return {key: _sorted(inner[key], item) if key in inner else item for key, item in plain.items()}
    if isinstance(plain, list) and isinstance(value, list | tuple | deque | set | frozenset):
        return _array(cast("Collection[object]", value), plain)
    return plain


def in_order(items: list[Json]) -> list[Json]:
    """The items of a set, sorted by value if they can be compared, else by their JSON."""
    try:
        return sorted(items)  # pyright: ignore[reportArgumentType, reportUnknownVariableType] - else TypeError
    except TypeError:
        return sorted(items, key=canonical)


def _array(value: Collection[object], plain: list[Json]) -> list[Json]:
    if len(value) != len(plain):
        return plain
    items = [_sorted(*pair) for pair in zip(value, plain, strict=True)]
    return in_order(items) if isinstance(value, set | frozenset) else items


def _entries(value: object, plain: dict[str, Json]) -> Mapping[str, object]:
    """The values that the keys of ``plain`` were made from, as far as they can be found."""
    if isinstance(value, dict):
        items = cast("dict[object, object]", value)
        return dict(zip(plain, items.values(), strict=True)) if len(items) == len(plain) else {}
    if isinstance(value, BaseModel):
        return {**_named(value, type(value).model_fields), **(value.model_extra or {})}
    if dataclasses.is_dataclass(value):
        return _named(value, {field.name: field for field in dataclasses.fields(value)} | _pydantic_fields(value))
    return {}


def _pydantic_fields(value: object) -> dict[str, Any]:
    """The fields of one of pydantic's own dataclasses."""
    return getattr(value, "__pydantic_fields__", {})


def _named(value: object, fields: Mapping[str, object]) -> dict[str, object]:
    """A value's fields by their names in JSON; a value that was created unchecked may lack some."""
    there = {name: field for name, field in fields.items() if hasattr(value, name)}
    return {getattr(field, "serialization_alias", None) or name: getattr(value, name) for name, field in there.items()}
