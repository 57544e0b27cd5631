"""Sets in one order: pydantic writes a set as its process holds it, and every process holds it in another order."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias, cast

from pydantic import BaseModel, RootModel

from harness_worker.core.canonical import canonical

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None


def sort_sets(value: object, plain: Json) -> Json:
    """``plain``, the JSON that pydantic made of ``value``, with each set in it sorted.

    What a serialiser of its author's made of a value stays as it is.
    """
    if isinstance(value, RootModel):
        return sort_sets(cast("RootModel[object]", value).root, plain)
    if isinstance(plain, dict):
        inner = _entries(value, plain)
        return {key: sort_sets(inner[key], item) if key in inner else item for key, item in plain.items()}
    if isinstance(plain, list) and isinstance(value, list | tuple | deque | set | frozenset):
        return _array(cast("Collection[object]", value), plain)
    return plain


def in_order(items: list[Json]) -> list[Json]:
    """The items of a set, sorted: by value where they can be compared, else by their JSON."""
    try:
        return sorted(items)  # pyright: ignore[reportArgumentType, reportUnknownVariableType] - else TypeError
    except TypeError:
        return sorted(items, key=canonical)


def _array(value: Collection[object], plain: list[Json]) -> list[Json]:
    if len(value) != len(plain):
        return plain
    items = [sort_sets(*pair) for pair in zip(value, plain, strict=True)]
    return in_order(items) if isinstance(value, set | frozenset) else items


def _entries(value: object, plain: dict[str, Json]) -> Mapping[str, object]:
    """What the keys of ``plain`` were made of, as far as that can be told."""
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
    """A value's fields by their names in JSON."""
    return {getattr(field, "serialization_alias", None) or name: getattr(value, name) for name, field in fields.items()}
