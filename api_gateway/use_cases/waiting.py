"""Waiting for a turn's end: `Prefer: wait=N` (RFC 7240)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from api_gateway.concurrency.coalescing import Gathered, LateAnswers
from api_gateway.services import Services
from api_gateway.streams.live import RESTING_EVENTS, Feed, LiveEvent, LiveEvents, Wake
from api_gateway.turns.answers import Turn
from api_gateway.turns.heads import Head
from api_gateway.use_cases.turn_lookup import existing_turn
from harness_worker.wire import FINAL_STATUSES, LONGEST_WAIT_S, TERMINAL_EVENTS, TurnStatus

POLL_S: Final = 1.0
"""How often a waiter looks into SQL at least, because live events may be lost."""

LEAST_LOOK_S: Final = 1.0
MOST_LOOK_S: Final = 5.0
"""Bounds on how long the database may take for what follows a wait, while the client still waits."""

RESTING: Final = FINAL_STATUSES | {TurnStatus.REQUIRES_ACTION}
"""Statuses in which nothing happens until somebody else acts, so that there is nothing to wait for."""

_WAIT: Final = re.compile(r'\s*wait\s*=\s*"?(\d+(?:\.\d+)?)"?\s*(?:;.*)?', re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter:
    """A client that waits for a turn.

    Args:
        wait_s: How long it is willing to wait.
        has_gone: Whether it has gone away, so that nobody waits any more.
        until_end: Whether it waits for the end of a turn that it asked to stop, though that may wait for a person.
        since: When its request came, by the monotonic clock: making the turn takes some of the time.
    """

    wait_s: float
    has_gone: Callable[[], Awaitable[bool]]
    until_end: bool = False
    since: float = field(default_factory=monotonic)

    @property
    def last_look_s(self) -> float:
        """How long the look at the turn after the wait may take, in seconds: what is left of the wait, plus a tenth."""
        left_s = max(0.0, self.since + self.wait_s - monotonic())
        return left_s + min(MOST_LOOK_S, max(LEAST_LOOK_S, self.wait_s / 10))


def wait_of(prefer: list[str]) -> float:
    """How many seconds a client is willing to wait, at most 60; a senseless preference counts as none."""
    for preference in ",".join(prefer).split(","):
        if wanted := _WAIT.fullmatch(preference):
            return min(float(wanted[1]), LONGEST_WAIT_S)
    return 0.0


async def turn_at_rest(
    turn: Turn, waiter: Waiter, services: Services, begin: Callable[[], Awaitable[object]] | None = None
) -> Turn:
    """The turn once it rests, or as it is when nobody waits any longer.

    Args:
        turn: The turn as last seen, which is the answer if the database gives none.
        waiter: Who waits; one that is not willing to wait gets ``turn``.
        services: The tenant's services.
        begin: Called once the turn's events are being heard, so that none that it causes is missed.
    """
    with services.shared.live.watch(turn.id) as feed:
        if begin is not None:
            await begin()
        if waiter.wait_s <= 0:
            return turn
        await wait_for_rest(turn.id, waiter, feed, services.shared.live, services.shared.heads)
    return await turn_now(turn, waiter, services)


async def turn_now(turn: Turn, waiter: Waiter, services: Services) -> Turn:
    """The turn as it is now; as it was if the database does not answer in time, or soon if the process stops."""
    until = monotonic() + waiter.last_look_s
    looks = LateAnswers(partial(existing_turn, turn.id, services))
    try:
        while (left := until - monotonic()) > 0:
            with suppress(TimeoutError):
                return await looks.within(min(left, POLL_S))
            if services.shared.live.stopping:
                break
    except SQLAlchemyError:
        pass
    finally:
        looks.leave()
    return turn


async def wait_for_rest(turn_id: str, waiter: Waiter, feed: Feed, live: LiveEvents, heads: Gathered[Head]) -> None:
    """Return when the turn rests (or ends, if only that counts), time is up, the client left, or the process stops."""
    until = waiter.since + waiter.wait_s
    awaited = TERMINAL_EVENTS if waiter.until_end else RESTING_EVENTS
    looks = LateAnswers(partial(heads.of, turn_id))
    try:
        while not live.stopping and (left := until - monotonic()) > 0 and not await waiter.has_gone():
            heard = await feed.next(min(left, POLL_S))
            if isinstance(heard, LiveEvent) and heard.type in awaited:
                return
            left = until - monotonic()
            if isinstance(heard, Wake) and left > 0 and await _rests(looks, left, until_end=waiter.until_end):
                return
    finally:
        looks.leave()


async def _rests(looks: LateAnswers[Head | None], limit_s: float, *, until_end: bool) -> bool:
    try:
        head = await looks.within(min(limit_s, POLL_S))
    except (SQLAlchemyError, TimeoutError):
        return False  # The next look tries again, or hears the answer, if there is time for one.
    if head is None or head.has_ended:
        return True
    return not until_end and (head.status == TurnStatus.REQUIRES_ACTION or head.asks_below)
