"""Tries requests again while the reason for their failure may pass: a restart, an absent database, too much to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from harness_worker.client.answers import RequestRefused, StackUnreachable

if TYPE_CHECKING:
    from harness_worker.ports import Clock

AWAY_S: Final = 30.0
"""How long a gateway may be away, in seconds; it is restarted when it dies."""

SOON_S: Final = 0.25
LATER_S: Final = 5.0
PASSING: Final = frozenset({429, 503})
LIMITS: Final = frozenset({"queue_full", "rate_limited"})
"""The gateway's own codes for 429; a proxy's 429 need not name a time."""

BEHIND: Final = frozenset({502, 504})
"""What a proxy answers while the gateway behind it is away."""

Refusal = StackUnreachable | RequestRefused
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long requests to a gateway are tried again while their failure may be temporary.

    Args:
        clock: For waiting.
        away_s: How long nothing may answer, in seconds; 0: each request is sent once.
        busy_s: How long the gateway may say that it is busy, in seconds.
    """

    clock: Clock
    away_s: float
    busy_s: float

    def __call__(self, ask: Callable[[], T]) -> T:
        """What ``ask`` finally returns.

        Raises:
            StackUnreachable: Nothing has answered for too long.
            RequestRefused: The gateway refuses for good, or has refused for too long.
        """
        outage = Outage(self)
        while True:
            try:
                return ask()
            except (StackUnreachable, RequestRefused) as refused:
                outage.endure(refused)

    def bound_s(self, refused: Refusal) -> float:
        """How long failures such as this are endured, in seconds; 0: not at all."""
        if isinstance(refused, StackUnreachable) or refused.status in BEHIND:
            return self.away_s
        return self.busy_s if _is_passing(refused) else 0.0


class Outage:
    """Failures one after the other, without a success between them.

    Args:
        patience: How long they are endured.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._began: float | None = None
        self._bound_s: float | None = None
        self._since = 0.0
        self._pause_s = SOON_S

    def endure(self, refused: Refusal) -> None:
        """Wait for the time of the next try: after ``Retry-After`` if there is one, else at growing intervals.

        Raises:
            StackUnreachable, RequestRefused: ``refused`` itself, if it will not pass or has not passed for too long.
        """
        patience = self._patience
        now, bound_s = patience.clock.monotonic(), patience.bound_s(refused)
        self._began = now if self._began is None else self._began
        if bound_s != self._bound_s:  # a busy gateway that goes away is given the time of any other
            self._bound_s, self._since = bound_s, now
        left_s = min(self._since + bound_s, self._began + max(patience.away_s, patience.busy_s)) - now
        if left_s <= 0:
            raise refused
        patience.clock.wait(min(left_s, max(SOON_S, refused.retry_after_s or self._pause_s)))
        self._pause_s = min(LATER_S, self._pause_s * 2)


def _is_passing(refused: RequestRefused) -> bool:
    """Whether the same request may succeed later. A limit that it can never meet is refused without ``Retry-After``."""
    if refused.code in LIMITS:
        return refused.retry_after_s is not None
    return refused.status in PASSING or refused.code == "idempotency_in_flight"
