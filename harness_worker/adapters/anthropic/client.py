"""Claude behind ``ports.ModelClient``: the Messages API through Anthropic's SDK, streamed."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from typing import Final

from harness_worker.adapters.anthropic.assembly import Assembly
from harness_worker.adapters.anthropic.calls import Call, CallStopped
from harness_worker.adapters.anthropic.connections import ConnectionPool
from harness_worker.adapters.anthropic.requests import body_of
from harness_worker.errors import Stopped
from harness_worker.ports import ModelReply, ModelRequest

_QUIET: Final = {"anthropic": logging.INFO, "httpcore2": logging.INFO, "httpx2": logging.WARNING}
"""Below these levels the libraries log whole requests, including users' texts, or a line for each request."""


class AnthropicModel:
    """Implements ``ports.ModelClient``. Holds no turn's state; safe to use from several threads.

    Never retries by itself: a failed call leaves nothing durable, so the step is simply asked again.

    Args:
        api_key: The provider's key.
        base_url: The provider's URL; ``None``: Anthropic itself.
    """

    def __init__(self, api_key: str, base_url: str | None = None) -> None:
        self._pool = ConnectionPool(api_key, base_url)
        _keep_quiet()

    def complete(self, request: ModelRequest) -> ModelReply:
        """One reply, its content blocks exactly as they were streamed.

        Raises:
            TransientError: Overloaded, rate-limited, a broken connection or stream, or no answer in time.
            ModelError: The provider refused the request; the message is its own.
            Stopped: ``request.stop`` was set; the connection is cut, and ``said`` is the text that was there.
        """
        assembly = Assembly(request.model, request.on_text)
        call = Call(self._pool, body_of(request), timeout_s=request.timeout_s, stop=request.stop, clock=time.monotonic)
        try:
            with closing(call.events()) as events:
                for event in events:
                    assembly.take(event)
        except CallStopped:
            raise Stopped(assembly.said) from None
        return assembly.reply()


def _keep_quiet() -> None:
    for name, level in _QUIET.items():
        library = logging.getLogger(name)
        if library.level == logging.NOTSET:  # a level that was set on purpose stays
            library.setLevel(level)
