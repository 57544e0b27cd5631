"""Stores an instance of a domain class as JSON: with private attributes, shared parts, cycles and random generators.

The value is a list of nodes, of which the first is the instance; ``{"node": 3}`` refers to the node with that index.
Equal states give equal text: times of last modification, which come from the clock and are never read, become ``null``.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, cast

from harness_worker.core.canonical import compact
from harness_worker.errors import InvariantError

_PLAIN: Final = (str, bool, int, float, type(None))
_REF: Final = "node"

Node = list[Any]


def freeze(instance: object) -> str:
    """The instance as text.

    Raises:
        InvariantError: It holds a value that cannot be stored.
    """
    freezer = _Freezer()
    freezer.value(instance)
    return compact(freezer.nodes)


def thaw(kind: type[Any], text: str) -> Any:  # noqa: ANN401 - BFCL has no types
    """The instance from which :func:`freeze` made ``text``.

    Args:
        kind: Its class; only classes of the same module are instantiated.
        text: The text that :func:`freeze` returned.
    """
    known = vars(sys.modules[kind.__module__])
    return _Thawer(json.loads(text), known).value({_REF: 0})


class _Freezer:
    """One walk over an instance; a part that occurs again is the same node."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._index: dict[int, int] = {}

    def value(self, value: object) -> object:
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, datetime):
            return None
        if id(value) not in self._index:
            self._index[id(value)] = len(self.nodes)
            node: Node = []
            self.nodes.append(node)
            node.extend(self._node(value))
        return {_REF: self._index[id(value)]}

    def _node(self, value: object) -> Node:
        if isinstance(value, dict):
            return ["dict", self._pairs(cast("dict[object, object]", value))]
        if isinstance(value, list | tuple):
            items = cast("list[object]", value)
            return ["tuple" if isinstance(items, tuple) else "list", [self.value(item) for item in items]]
        if isinstance(value, set):
            return ["set", sorted((self.value(item) for item in cast("set[object]", value)), key=compact)]
        if isinstance(value, random.Random):
            return ["random", value.getstate()]
        if value is ...:
            return ["ellipsis"]
        if hasattr(value, "__dict__"):
            return ["object", type(value).__name__, self._pairs(vars(value))]
        raise InvariantError(f"a domain class holds a {type(value).__name__}, which a snapshot does not know")

    def _pairs(self, entries: Mapping[Any, object]) -> Node:
        return [[self.value(key), self.value(item)] for key, item in entries.items()]


class _Thawer:
    """Creates each node once, before its parts, so that cycles can be closed."""

    def __init__(self, nodes: list[Node], known: Mapping[str, Any]) -> None:
        self._nodes = nodes
        self._known = known
        self._made: dict[int, Any] = {}
        self._makers: Mapping[str, Callable[..., Any]] = {
            "dict": self._dict,
            "list": self._list,
            "tuple": self._tuple,
            "set": self._set,
            "object": self._object,
            "random": self._random,
            "ellipsis": self._ellipsis,
        }

    def value(self, value: Any) -> Any:  # noqa: ANN401 - any part of a snapshot
        if not isinstance(value, dict):
            return value
        index: int = cast("dict[str, int]", value)[_REF]
        if index not in self._made:
            kind, *parts = self._nodes[index]
            self._makers[kind](index, *parts)
        return self._made[index]

    def _dict(self, index: int, pairs: Node) -> None:
        made = self._made[index] = dict[Any, Any]()
        made.update((self.value(key), self.value(item)) for key, item in pairs)

    def _list(self, index: int, items: Node) -> None:
        made = self._made[index] = list[Any]()
        made.extend(self.value(item) for item in items)

    def _tuple(self, index: int, items: Node) -> None:
        self._made[index] = tuple(self.value(item) for item in items)

    def _set(self, index: int, items: Node) -> None:
        self._made[index] = {self.value(item) for item in items}

    def _object(self, index: int, name: str, pairs: Node) -> None:
        made: object = object.__new__(self._known[name])
        self._made[index] = made
        vars(made).update((self.value(key), self.value(item)) for key, item in pairs)

    def _random(self, index: int, state: Node) -> None:
        version, numbers, gauss = state
        made = self._made[index] = random.Random()  # noqa: S311 - BFCL's own generator, brought back
        made.setstate((version, tuple(numbers), gauss))

    def _ellipsis(self, index: int) -> None:
        self._made[index] = ...
