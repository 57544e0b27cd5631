"""Asking again who does not answer, where no other process would."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from tenacity import Retrying, before_sleep_log, retry_if_exception_type, stop_after_attempt, wait_fixed

from harness_worker.errors import TransientError
from harness_worker.ports import Clock

log = logging.getLogger(__name__)

AGAIN_S: Final = 1.0
TRIES: Final = 30

T = TypeVar("T")


def patiently(ask: Callable[[], T], clock: Clock) -> T:
    """What ``ask`` returns, which is called again, a second later, while it fails in passing.

    Raises:
        TransientError: It has failed :data:`TRIES` times.
    """
    retrying = Retrying(
        retry=retry_if_exception_type(TransientError),
        wait=wait_fixed(AGAIN_S),
        stop=stop_after_attempt(TRIES),
        sleep=clock.wait,
        before_sleep=before_sleep_log(log, logging.WARNING),
        reraise=True,
    )
    return retrying(ask)
