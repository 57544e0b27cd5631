"""What a provider would refuse in a request, whatever went wrong before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from harness_worker.core.records import Message


def refused(messages: Sequence[Message]) -> Iterator[str]:
    """Users and assistants take turns, no message is empty, and each call's result comes right behind it.

    Who has lost the turn to another may read that one's last message, and ask in vain: that is not held against it.
    """
    roles = [message.role for message in messages]
    if roles != [("user", "assistant")[number % 2] for number in range(len(roles))]:
        yield f"asked with messages of {roles}"
    if not all(message.content for message in messages):
        yield "asked with an empty message"
    for before, after in pairwise(messages):
        calls, results = ids_in(before, "tool_use", "id"), ids_in(after, "tool_result", "tool_use_id")
        if calls != results:
            yield f"asked with results {results} for calls {calls}"


def ids_in(message: Message, kind: str, name: str) -> list[str]:
    """The ids of a message's blocks of a kind."""
    blocks: list[dict[str, Any]] = [] if isinstance(message.content, str) else message.content
    return [block[name] for block in blocks if block["type"] == kind]
