"""Values whose fields can be read as attributes and, like those of their JSON, by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, cast


class ByName:
    """A base for dataclasses: ``usage["steps"]`` is ``usage.steps``, and ``dict(usage)`` has all fields."""

    __slots__ = ()

    def keys(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(field.name for field in fields(cast("Any", self)))

    def __iter__(self) -> Iterator[str]:
        """The names of the fields; without it, Python would ask for the fields 0, 1 and so on."""
        return iter(self.keys())

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - any field's value
        """The field with that name.

        Raises:
            KeyError: There is none.
        """
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)


class Entries(dict[str, Any]):
    """A mapping whose entries are also attributes: ``a.order_id`` and ``a["order_id"]``.

    An entry wins over a method of the same name, so that a tool may have a parameter ``items``.
    """

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - any entry's value
        """The entry with that name, else the attribute of a dict."""
        if dict[str, Any].__contains__(self, name):
            return dict[str, Any].__getitem__(self, name)
        return super().__getattribute__(name)
