"""Retrying a model while its provider fails in passing."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    wait_exponential,
    wait_random_exponential,
)

from harness_worker.errors import TransientError

log = logging.getLogger(__name__)

MODEL_TRIES = 5
MAX_BACKOFF_S = 8.0
_HALF = {"multiplier": 0.5, "max": MAX_BACKOFF_S / 2}
_BACKOFF = wait_exponential(**_HALF) + wait_random_exponential(**_HALF)


def retrying(nap: Callable[[float], None], *, what: str, fits: Callable[[float], bool] = lambda _: True) -> Retrying:
    """Calls a model until it answers, fails for good, or has failed in passing too often.

    Args:
        nap: Waits for the given number of seconds between two tries.
        what: Whose call it is, for the log.
        fits: Whether there is time for a pause of that many seconds and another try.
    """

    def log_retry(state: RetryCallState) -> None:
        error = _error_of(state)
        log.warning("model call of %s failed (try %d), trying again: %s", what, state.attempt_number, error)

    def is_over(state: RetryCallState) -> bool:
        return state.attempt_number >= MODEL_TRIES or not fits(state.upcoming_sleep)

    return Retrying(
        retry=retry_if_exception_type(TransientError),
        wait=_backoff_s,
        stop=is_over,
        sleep=nap,
        before_sleep=log_retry,
        reraise=True,
    )


def wished_s(error: BaseException | None) -> float:
    """How long the failed service asked to wait, in seconds; 0 if it did not."""
    return (error.retry_after_s or 0.0) if isinstance(error, TransientError) else 0.0


def _backoff_s(state: RetryCallState) -> float:
    """The next pause: growing, half random, to outlast an outage of seconds, and at least what the provider asks."""
    return max(_BACKOFF(state), wished_s(_error_of(state)))


def _error_of(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome is not None else None
