"""Retries requests while the reason for their failure may pass: a restart, an absent database, too much to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from harness_worker.client.client import (
    GatewayClient,
    RequestRefused,
    StackUnreachable,
    every,
)
from harness_worker.wire import JsonObject

if TYPE_CHECKING:
    from harness_worker.ports import Clock

AWAY_S: Final = 30.0
"""How long a gateway may be away, in seconds; it is restarted when it dies."""

SOON_S: Final = 0.25
LATER_S: Final = 5.0
LOOKS_A_WAIT: Final = 10
"""Polls per time waited so far: the end of a wait is noticed about a tenth of it late."""

SELDOM_S: Final = 2.0
PASSING: Final = frozenset({429, 503})
LIMITS: Final = frozenset({"queue_full", "rate_limited"})
"""The gateway's own codes for 429; a proxy's 429 need not name a time."""

BEHIND: Final = frozenset({502, 504})
"""What a proxy answers while the gateway behind it is away."""

Refusal = StackUnreachable | RequestRefused
T = TypeVar("T")


class Patience:
    """Retries requests to a gateway while their failure may be temporary.

    A refusal that names a time (``Retry-After``) is retried after it, any other one at growing intervals.

    Args:
        clock: For waiting.
        busy_s: How long the gateway may say that it is busy, in seconds.
    """

    def __init__(self, clock: Clock, *, busy_s: float = AWAY_S) -> None:
        self._clock = clock
        self._busy_s = busy_s

    def __call__(self, ask: Callable[[], T]) -> T:
        """What ``ask`` finally returns.

        Raises:
            StackUnreachable: Nothing has answered for too long.
            RequestRefused: The gateway refuses for good, or has refused for too long.
        """
        began, pause_s = self._clock.monotonic(), SOON_S
        while True:
            try:
                return ask()
            except (StackUnreachable, RequestRefused) as refused:
                left_s = began + self._bound_s(refused) - self._clock.monotonic()
                if left_s <= 0:
                    raise
                self._clock.wait(min(left_s, max(SOON_S, refused.retry_after_s or pause_s)))
            pause_s = min(LATER_S, pause_s * 2)

    def _bound_s(self, refused: Refusal) -> float:
        """For how long, in all, this failure is retried, in seconds; 0: not at all."""
        if isinstance(refused, StackUnreachable) or refused.status in BEHIND:
            return AWAY_S
        return self._busy_s if is_passing(refused) else 0.0


def is_passing(refused: Refusal) -> bool:
    """Whether the same request may succeed later. A limit that it can never meet is refused without ``Retry-After``."""
    if isinstance(refused, StackUnreachable):
        return True
    if refused.code in LIMITS:
        return refused.retry_after_s is not None
    return refused.status in PASSING | BEHIND or refused.code == "idempotency_in_flight"


class PatientGateway:
    """Requests for turns and batches that are retried while the gateway restarts.

    Args:
        client: The gateway.
        clock: For waiting.
        busy_s: How long it may say that it is busy, in seconds.
    """

    def __init__(self, client: GatewayClient, clock: Clock, *, busy_s: float = AWAY_S) -> None:
        self._client = client
        self._clock = clock
        self._patiently = Patience(clock, busy_s=busy_s)

    def created(self, body: Mapping[str, Any], idempotency_key: str, wait_s: float | None = None) -> JsonObject:
        """The turn of an idempotency key, made now or before; with ``wait_s`` perhaps already ended."""
        return self._patiently(lambda: self._client.create_turn(body, wait_s, idempotency_key))

    def turn(self, turn_id: str, include: Sequence[str] = ()) -> JsonObject:
        """A turn as it is now."""
        return self._patiently(lambda: self._client.turn(turn_id, include))

    def turns(self, **filters: str | int) -> list[JsonObject]:
        """All turns that match, newest first, over as many pages as it takes."""
        return list(every(self._page, **filters))

    def cancel(self, turn_id: str) -> JsonObject:
        """Ask a turn to stop, perhaps more than once, and return it."""
        return self._patiently(lambda: self._client.cancel(turn_id))

    def batch(self, batch_id: str) -> JsonObject:
        """A batch and its progress."""
        return self._patiently(lambda: self._client.batch(batch_id))

    def awaited(
        self, look: Callable[[], JsonObject], is_over: Callable[[JsonObject], bool], most_s: float
    ) -> JsonObject:
        """Poll ``look`` until its result ``is_over``, or return the latest one when ``most_s`` seconds have passed."""
        began = self._clock.monotonic()
        while not is_over(found := look()):
            waited_s = self._clock.monotonic() - began
            if waited_s >= most_s:
                break
            self._clock.wait(min(SELDOM_S, max(SOON_S, waited_s / LOOKS_A_WAIT)))
        return found

    def _page(self, **asked: str | int) -> JsonObject:
        return self._patiently(partial(self._client.turns, **asked))
