"""Validated arguments as ``resource_keys``, ``approval`` and ``lock`` see them."""

from __future__ import annotations

from typing import Any


class ArgumentsView(dict[str, Any]):
    """A mapping whose entries are also attributes: ``a.order_id`` and ``a["order_id"]``.

    An argument wins over a method of the same name, so that a tool may have a parameter ``items``.
    """

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - any argument's value
        """The argument with that name, else the attribute of a dict."""
        if dict[str, Any].__contains__(self, name):
            return dict[str, Any].__getitem__(self, name)
        return super().__getattribute__(name)
