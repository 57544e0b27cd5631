"""A tau2 database as one turn sees it: the shared base, overlaid with the records that the turn changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, MutableMapping
from types import SimpleNamespace
from typing import Any, cast

from pydantic import BaseModel

from harness_worker.core.canonical import compact
from harness_worker.workloads.state import Overlay
from harness_worker.workloads.tau2.source import Domain


class Collection(MutableMapping[str, BaseModel]):
    """One collection of records. Getting a record of a writable collection copies it; the copy then replaces it.

    Args:
        base: The shared records; never changed.
        changed: This turn's records; ``None`` means deleted.
        writable: Whether records may be changed. A tool that only reads gets the shared records without copying.
    """

    def __init__(self, base: Mapping[str, BaseModel], changed: dict[str, BaseModel | None], *, writable: bool) -> None:
        self._base = base
        self._own = changed
        self._writable = writable

    def __getitem__(self, key: str) -> BaseModel:
        if key not in self._own and self._writable:
            self._own[key] = self._base[key].model_copy(deep=True)
        found = self._own[key] if key in self._own else self._base[key]
        if found is None:
            raise KeyError(key)
        return found

    def __setitem__(self, key: str, record: BaseModel) -> None:
        self._own[key] = record

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._own[key] = None

    def __contains__(self, key: object) -> bool:
        return self._own[cast("str", key)] is not None if key in self._own else key in self._base

    def __iter__(self) -> Iterator[str]:
        added = [key for key in self._own if key not in self._base]
        return (key for key in [*self._base, *added] if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def texts(self) -> dict[str, str | None]:
        """The records that were copied, added or deleted, as JSON."""
        return {key: None if record is None else as_text(record) for key, record in self._own.items()}


class View(SimpleNamespace):
    """A database for tau2's tools, with the domain's collections as attributes.

    Args:
        domain: The domain, which has the base.
        overlay: What the turn has changed so far.
        writable: Whether the tool may change records.
    """

    def __init__(self, domain: Domain, overlay: Overlay, *, writable: bool) -> None:
        self._domain = domain
        self._before = overlay
        self._collections = {
            name: Collection(getattr(domain.base, name), _restored(domain, name, overlay), writable=writable)
            for name in domain.records
        }
        super().__init__(**self._collections)

    def changes(self) -> Overlay:
        """The records that differ from the view's initial state."""
        return {
            (name, key): text
            for name, collection in self._collections.items()
            for key, text in collection.texts().items()
            if text != self._text_before(name, key)
        }

    def materialised(self) -> BaseModel:
        """The whole database, as an instance of tau2's own class."""
        collections: dict[str, Any] = {name: dict(collection) for name, collection in self._collections.items()}
        return type(self._domain.base).model_construct(**collections)

    def _text_before(self, name: str, key: str) -> str | None:
        if (name, key) in self._before:
            return self._before[name, key]
        record = getattr(self._domain.base, name).get(key)
        return None if record is None else as_text(record)


def as_text(record: BaseModel) -> str:
    """A record as JSON, with its keys in their original order, which observations show.

    Pydantic's JSON mode is not used, because it writes an ``int`` in a ``float`` field as a ``float``.
    """
    return compact(record.model_dump())


def from_text(kind: type[BaseModel], text: str) -> BaseModel:
    """The record from which :func:`as_text` made ``text``, including the type of each number.

    tau2's tools assign without validation, so that a ``float`` field may hold an ``int``; 0 and 0.0 differ in the
    state's hash and in observations.
    """
    raw = json.loads(text)
    return cast("BaseModel", _exact(kind.model_validate(raw), raw))


def _exact(value: object, raw: Any) -> object:  # noqa: ANN401 - any JSON value
    if isinstance(value, BaseModel):
        for name, part in raw.items():
            setattr(value, name, _exact(getattr(value, name), part))
        return value
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {key: _exact(members[key], part) for key, part in raw.items()}
    if isinstance(value, list):
        return [_exact(item, part) for item, part in zip(cast("list[object]", value), raw, strict=True)]
    return raw


def _restored(domain: Domain, name: str, overlay: Overlay) -> dict[str, BaseModel | None]:
    kind = domain.records[name]
    return {
        key: None if text is None else from_text(kind, text)
        for (collection, key), text in overlay.items()
        if collection == name
    }
