"""Counts of the requests to this process, and of its open streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from starlette.types import Scope

METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER: Final = "other"
"""The label of all methods and paths that the API does not have: clients may send any number of them."""


class Traffic:
    """The requests and streams of this process.

    Attributes:
        answered: How many requests were answered, by method, route (with its placeholders) and status.
        readers: How many streams are open: of events, and of answers to OpenAI's clients.
    """

    def __init__(self) -> None:
        self.answered: Counter[tuple[str, ...]] = Counter()
        self.readers = 0

    def count(self, scope: Scope, status: int) -> None:
        """Count a request that was answered."""
        method = scope["method"] if scope["method"] in METHODS else OTHER
        self.answered[method, _route(scope), str(status)] += 1

    @contextmanager
    def reading(self) -> Generator[None]:
        """Within the context, one more stream is open."""
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1


def _route(scope: Scope) -> str:
    """The route's path as the API's description has it; the router puts the route into the scope."""
    return getattr(scope.get("route"), "path_format", OTHER)
