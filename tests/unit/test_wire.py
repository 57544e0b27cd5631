"""What crosses process borders keeps its shape, and anything else is refused."""

from __future__ import annotations

from typing import Any

import pytest

from harness_worker.errors import NewerWire, WireError
from harness_worker.wire import ToolMessage

MESSAGE = ToolMessage(turn_id="t", call_id="0.1", attempt=2, read=True, tenant="default")


def test_tool_message_survives_the_wire() -> None:
    """A message is what was sent."""
    assert ToolMessage.from_kwargs(MESSAGE.to_kwargs()) == MESSAGE


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"more": 1}, "more"),
        ({"turn_id": None}, "turn_id"),
        ({"attempt": "2"}, "attempt"),
        ({"attempt": True}, "attempt"),
        ({"read": "yes"}, "read"),
        ({"call_id": 0.1}, "call_id"),
    ],
)
def test_tool_message_of_another_shape_is_refused(change: dict[str, Any], named: str) -> None:
    """Unknown fields and wrong types are a wire error that names them."""
    with pytest.raises(WireError, match=named):
        ToolMessage.from_kwargs({**MESSAGE.to_kwargs(), **change})


def test_tool_message_of_a_version_to_come_is_told_from_a_wrong_one() -> None:
    """Whatever fields it has: it is for a newer worker, and nothing about it is wrong."""
    with pytest.raises(NewerWire, match="version 2; this worker reads 1"):
        ToolMessage.from_kwargs({"v": 2, "ticket": "…"})


def test_tool_message_without_a_field_is_refused() -> None:
    """A missing field is a wire error that names it."""
    kwargs = MESSAGE.to_kwargs()
    del kwargs["tenant"]
    with pytest.raises(WireError, match="tenant"):
        ToolMessage.from_kwargs(kwargs)
