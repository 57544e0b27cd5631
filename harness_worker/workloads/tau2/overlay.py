"""A tau2 database as one turn sees it: the shared base with the turn's changed records laid over it."""

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
    """One collection of records. Whoever takes a record out of a writable one gets a copy, which is then the record.

    Args:
        base: The shared records; never changed.
        changed: This turn's records; ``None`` is deleted.
        writable: Whether records may be changed. A tool that only reads gets the shared ones, which costs nothing.
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
        """The records that were taken out or put in, as JSON."""
        return {key: None if record is None else as_text(record) for key, record in self._own.items()}


class View(SimpleNamespace):
    """A database for tau2's tools: its attributes are the domain's collections.

    Args:
        domain: Whose base it is.
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
        """The records that differ from how the view began."""
        return {
            (name, key): text
            for name, collection in self._collections.items()
            for key, text in collection.texts().items()
            if text != self._text_before(name, key)
        }

    def materialised(self) -> BaseModel:
        """The whole database, in tau2's own class."""
        collections: dict[str, Any] = {name: dict(collection) for name, collection in self._collections.items()}
        return type(self._domain.base).model_construct(**collections)

    def _text_before(self, name: str, key: str) -> str | None:
        if (name, key) in self._before:
            return self._before[name, key]
        record = getattr(self._domain.base, name).get(key)
        return None if record is None else as_text(record)


def as_text(record: BaseModel) -> str:
    """A record as JSON, the order of its keys kept: observations show it.

    Not in pydantic's JSON mode, which writes an ``int`` where the class says ``float`` as one.
    """
    return compact(record.model_dump())


def from_text(kind: type[BaseModel], text: str) -> BaseModel:
    """The record that :func:`as_text` made ``text`` of, to the type of each number.

    tau2's tools assign without validation, so that an ``int`` may stand where the class says ``float``; the state's
    hash and the observations tell 0 from 0.0.
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
