"""Requests to Claude behind the model port."""

from __future__ import annotations

import threading
from typing import Any

from harness_worker.core.records import Message
from harness_worker.ports import ModelRequest

KEY = "sk-ant-fake"
MODEL = "claude-sonnet-5-5"
USER = Message(role="user", content="Where is my order?")


def asking(*messages: Message, **changes: Any) -> ModelRequest:  # noqa: ANN401 - any field
    """A request, by default with a single question."""
    given: dict[str, Any] = {
        "model": MODEL,
        "system": "Be kind.",
        "tools": (),
        "messages": messages or (USER,),
        "step": 0,
        "metadata": {"private": "never sent"},
        "timeout_s": 20.0,
        "stop": threading.Event(),
    }
    return ModelRequest(**{**given, **changes})
