"""Taking messages from the broker: one of a wrong shape must not end the worker, come back, and end the next."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery.worker.consumer import Consumer
from kombu.exceptions import ContentDisallowed, DecodeError

log = logging.getLogger(__name__)

MISSHAPEN = (TypeError, ValueError, LookupError, AttributeError, DecodeError, ContentDisallowed)
"""What Celery and kombu raise over a body or headers that they did not expect."""


class CarefulConsumer(Consumer):
    """Drops the messages that Celery's own consumer would stop at."""

    def create_task_handler(self, *args: Any, **options: Any) -> Callable[[Any], None]:  # noqa: ANN401 - Celery's own signature
        """Celery's handler of one message; never raises over what the message holds."""
        handle: Callable[[Any], Any] = super().create_task_handler(*args, **options)

        def receive(message: Any) -> None:  # noqa: ANN401 - a kombu message
            try:
                handle(message)
            except MISSHAPEN as error:
                log.warning("message dropped, it is not one of ours: %s: %s", type(error).__name__, error)
                if not message.acknowledged:
                    message.reject()

        return receive
