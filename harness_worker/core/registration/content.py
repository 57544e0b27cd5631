"""A tool's return value as the model reads it: pydantic's JSON mode, but stricter.

A value that would arrive as something else or differ between processes is refused (NaN, infinity, iterators, cycles,
keys that become the same) or normalised (sets are sorted).
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from types import CoroutineType
from typing import Any, NoReturn, cast

from pydantic_core import to_jsonable_python

from harness_worker.core.canonical import compact
from harness_worker.core.registration.set_order import Json, in_order, sort_sets
from harness_worker.core.text import clean_text
from harness_worker.errors import UnserialisableResult

MAX_DEPTH = 100
MAX_INT_BITS = 14_000
"""Python refuses to print integers of more than 4,300 digits."""

_PATH_CHARS = 200


def compact_or_text(value: Json) -> str:
    """A JSON value as the model reads it: a string verbatim, anything else as compact JSON."""
    return value if isinstance(value, str) else compact(value)


def to_json(value: object) -> Json:
    """``value`` as plain JSON values with clean strings.

    Raises:
        UnserialisableResult: It cannot be represented in JSON, or reading it raised; the message is ``unserialisable
            result: TYPE at PATH``.
        MemoryError: There is too little memory for it, which says nothing about the value.
    """
    return _Walk().value(value, "$")


def _refuse(value: object, path: str) -> NoReturn:
    shown = path if len(path) <= _PATH_CHARS else f"{path[:_PATH_CHARS]}…"
    raise UnserialisableResult(f"unserialisable result: {type(value).__name__} at {shown}") from None


class _Walk:
    """One pass over a value; remembers the containers that it is inside of, to detect cycles."""

    def __init__(self) -> None:
        self._inside: set[int] = set()

    def value(self, value: object, path: str) -> Json:
        try:
            return self._plain(value, path)
        except (UnserialisableResult, MemoryError):
            raise
        except BaseException:  # noqa: BLE001 - reading a value may run its author's code, which may raise anything
            _refuse(value, path)

    def _plain(self, value: object, path: str) -> Json:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, enum.Enum):
            return self._within(value, path, lambda: self.value(value.value, path))
        if isinstance(value, str):
            return clean_text(str.__str__(value))
        if isinstance(value, int | float):
            return _number(value, path)
        return self._compound(value, path)

    def _compound(self, value: object, path: str) -> Json:
        whole: Any = value
        if isinstance(value, Iterator | CoroutineType | type):
            _discard(whole)
            _refuse(whole, path)
        if isinstance(value, dict):
            return self._within(whole, path, lambda: self._object(whole, path))
        if isinstance(value, list | tuple | deque):
            return self._within(whole, path, lambda: self._array(whole, path))
        if isinstance(value, set | frozenset):
            return self._within(whole, path, lambda: in_order(self._array(whole, path)))
        if _is_plain_dataclass(value):
            return self._within(value, path, lambda: self._object(_fields(value), path))
        return self._within(value, path, lambda: self._leaf(value, path))

    def _within(self, value: object, path: str, walk: Callable[[], Json]) -> Json:
        if id(value) in self._inside or len(self._inside) >= MAX_DEPTH:
            _refuse(value, path)
        self._inside.add(id(value))
        try:
            return walk()
        finally:
            self._inside.remove(id(value))

    def _array(self, items: Iterable[object], path: str) -> list[Json]:
        return [self.value(item, f"{path}[{index}]") for index, item in enumerate(items)]

    def _object(self, entries: Mapping[Any, object], path: str) -> dict[str, Json]:
        plain: dict[str, Json] = {}
        for key, item in entries.items():
            name = _key(key, path)
            if name in plain:  # such as 1 and "1", of which the model would read one
                _refuse(key, _below(path, name))
            plain[name] = self.value(item, _below(path, name))
        return plain

    def _leaf(self, value: object, path: str) -> Json:
        if isinstance(value, Decimal) and not value.is_finite():
            _refuse(value, path)
        try:
            plain = to_jsonable_python(value)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - never raises: serialisers are the tool author's code
            if isinstance(error.__cause__, MemoryError):  # pydantic's error for whatever a serialiser raises
                raise error.__cause__ from None
            self._blame_field(value, path)
            _refuse(value, path)
        _refuse_lost(value, plain, path)
        return self.value(sort_sets(value, plain), path)

    def _blame_field(self, value: object, path: str) -> None:
        """Refuse the pydantic model's or dataclass's field that is at fault, if there is one."""
        for name, item in _model_fields(value).items():
            self.value(item, _below(path, name))


def _refuse_lost(value: object, plain: object, path: str) -> None:
    """Refuse what pydantic writes without its loss: NaN or infinity as null, and keys that become the same as one."""
    if isinstance(value, float) and plain is None:
        _refuse(value, path)
    if isinstance(value, dict) and isinstance(plain, dict):
        _refuse_merged(cast("dict[object, object]", value), cast("dict[str, object]", plain), path)
    fields: dict[Any, object] = cast("dict[Any, object]", value) if isinstance(value, dict) else _model_fields(value)
    if isinstance(plain, dict):
        kept = cast("dict[Any, object]", plain)
        for name in fields.keys() & kept.keys():
            _refuse_lost(fields[name], kept[name], _below(path, str(name)))
    if isinstance(value, list | tuple) and isinstance(plain, list):
        for index, pair in enumerate(zip(cast("list[object]", value), cast("list[object]", plain), strict=False)):
            _refuse_lost(*pair, f"{path}[{index}]")


def _refuse_merged(value: dict[object, object], plain: dict[str, object], path: str) -> None:
    """Refuse a dict of which pydantic wrote fewer entries because their keys become the same."""
    if len(plain) < len(value) and len({_key(key, path) for key in value}) < len(value):
        _refuse(value, path)


def _model_fields(value: object) -> dict[str, object]:
    return vars(value) if hasattr(value, "__pydantic_serializer__") else {}


def _number(value: float, path: str) -> int | float:
    if isinstance(value, int):
        return int(value) if value.bit_length() <= MAX_INT_BITS else _refuse(value, path)
    return float(value) if math.isfinite(value) else _refuse(value, path)


def _is_plain_dataclass(value: object) -> bool:
    """Whether it is a dataclass but not one of pydantic's, which serialise themselves."""
    is_instance = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return is_instance and not hasattr(value, "__pydantic_serializer__")


def _fields(value: object) -> dict[str, object]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(cast("Any", value))}


def _key(key: object, path: str) -> str:
    if type(key) is str:
        return clean_text(key)
    try:
        (name,) = to_jsonable_python({key: None})
    except Exception:  # noqa: BLE001 - never raises: serialisers are the tool author's code
        _refuse(key, path)
    return clean_text(name)


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{compact(key)}]"


def _discard(value: object) -> None:
    """Close a coroutine that nobody will run, so that Python does not warn about it later."""
    if isinstance(value, CoroutineType):
        cast("CoroutineType[Any, Any, Any]", value).close()
