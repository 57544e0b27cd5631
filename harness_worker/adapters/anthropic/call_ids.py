"""Ids and names of calls in the form the provider accepts: models may reuse an id, and proxies may send any text.

The journal keeps them as they were received. What a call's id becomes depends only on the messages before it, so that
each request still begins with the one before.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, Final

from harness_worker.core.prompting.sent import blocks_of
from harness_worker.core.records import Message

MOST_NAME_CHARS: Final = 200

_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]")

Block = Mapping[str, Any]


def acceptable(messages: Iterable[Message]) -> Iterator[Message]:
    """The messages, with a unique id for each call, and ids and names made only of characters the provider allows."""
    ids = _Ids()
    for message in messages:
        blocks = blocks_of(message)
        sent = [ids.sent(block) for block in blocks]
        yield message if sent == blocks else replace(message, content=sent)


class _Ids:
    """The ids used so far, and those of calls without a result yet, by the model's own ids."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._open: defaultdict[str, deque[str]] = defaultdict(deque)

    def sent(self, block: Block) -> Block:
        """The block as it is sent; results come in the order of their calls."""
        match block.get("type"):
            case "tool_use":
                return {
                    **block,
                    "id": self._new(str(block.get("id", ""))),
                    "name": _letters(str(block.get("name", "")), "unnamed"),
                }
            case "tool_result" if waiting := self._open[str(block.get("tool_use_id", ""))]:
                return {**block, "tool_use_id": waiting.popleft()}
            case _:
                return block

    def _new(self, said: str) -> str:
        fit = _letters(said, "call")
        given = fit if fit not in self._given else self._numbered(fit)
        self._given.add(given)
        self._open[said].append(given)
        return given

    def _numbered(self, fit: str) -> str:
        return next(name for number in count(2) if (name := f"{fit}_{number}") not in self._given)


def _letters(text: str, empty: str) -> str:
    return _OTHER.sub("_", text)[:MOST_NAME_CHARS] or empty
