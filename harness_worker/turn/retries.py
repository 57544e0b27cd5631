"""Retrying a service that does not answer, where no other process would."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from harness_worker.ports import Clock
from harness_worker.turn.system_errors import is_passing

log = logging.getLogger(__name__)

HAND_IN_TRIES: Final = 9
LOOK_TRIES: Final = 30
LOOK_AGAIN_S: Final = 1.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Retries while there is no answer, with a pause that doubles each time.

    Args:
        clock: Times the pauses.
        tries: The maximum number of tries.
        first_s: The first pause, in seconds.
        longest_s: The longest pause, in seconds.
    """

    clock: Clock
    tries: int
    first_s: float
    longest_s: float

    def __call__(self, ask: Callable[[], T], what: str) -> T:
        """Return what ``ask`` does; ``what`` names it in the log.

        Raises:
            TransientError: There was no answer to the last try; or whatever the system raised then.
        """

        def tell(state: RetryCallState) -> None:
            if state.attempt_number == 1 and state.outcome is not None:
                log.warning("%s: trying again: %s", what, state.outcome.exception())

        retrying = Retrying(
            retry=retry_if_exception(is_passing),
            wait=wait_exponential(multiplier=self.first_s, max=self.longest_s),
            stop=stop_after_attempt(self.tries),
            sleep=self.clock.wait,
            before_sleep=tell,
            reraise=True,
        )
        return retrying(ask)

    def or_give_up(self, ask: Callable[[], T], what: str) -> T | None:
        """The same, but return ``None`` if there was no answer."""
        try:
            return self(ask, what)
        except Exception as error:
            if not is_passing(error):
                raise
            log.warning("%s: given up: %r", what, error)
            return None


def hand_in_retries(clock: Clock) -> Retries:
    """For a tool process once a body may have run: seven seconds, because a result is soon late, and others wait."""
    return Retries(clock=clock, tries=HAND_IN_TRIES, first_s=0.05, longest_s=2.0)


def look_retries(clock: Clock) -> Retries:
    """For the driver of a turn that nobody else looks at: half a minute."""
    return Retries(clock=clock, tries=LOOK_TRIES, first_s=LOOK_AGAIN_S, longest_s=LOOK_AGAIN_S)
