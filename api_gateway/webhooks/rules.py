"""What follows an attempt to tell of an event, and who is told next: pure rules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Final
from zlib import crc32

PAUSES_S: Final = (5.0, 30.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0)
"""Between one attempt and the next; after the last of them the event is given up."""

JITTER: Final = 0.1
"""By how much of itself a pause may be longer, so that those who failed together do not come back together."""

MOST_WAIT_S: Final = 3_600.0
"""How long a receiver may put off the next attempt, beyond what it is put off anyway."""

IN_FLIGHT: Final = 64
"""How many requests one process has under way."""

IN_FLIGHT_A_HOST: Final = 8
"""How many of them to one host: one that hangs holds up no others."""

IN_FLIGHT_A_TENANT: Final = 16
"""How many of them for one tenant at most; fewer where many have some, for a tenant never has more than are free."""

GONE: Final = 410
BUSY: Final = frozenset({429, 503})
_SECONDS: Final = re.compile(r"0*([0-9]+)")
_MOST_DATE_CHARS: Final = 64
_MOST_DIGITS: Final = 9
"""So many say more than may be asked for already."""


class Outcome(StrEnum):
    """How an attempt ended."""

    DELIVERED = "delivered"
    FAILED = "failed"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Which requests are limited together: those of one tenant to one host.

    Args:
        tenant: Whose turn it tells of.
        host: Whom it is sent to.
    """

    tenant: str
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DueDelivery:
    """A turn with an event to deliver.

    Args:
        turn_id: The turn.
        lane: Its tenant, and the host of its webhook.
    """

    turn_id: str
    lane: Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class Full:
    """Who has no room left.

    Args:
        hosts: Those that are called.
        tenants: Those whose turns are told of.
    """

    hosts: Sequence[str] = ()
    tenants: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverAnswer:
    """What a receiver answered.

    Args:
        status_code: Its status; ``None`` if there was no answer.
        error: Why that is no success, in words; ``None`` if it is one.
        wait_s: How long it asks to be left alone, in seconds.
    """

    status_code: int | None = None
    error: str | None = None
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an answer means.

    Args:
        outcome: How the attempt ended.
        pause_s: How long to wait before the next attempt; 0 where none follows.
        is_gone: Whether the receiver wants nothing more of this turn.
    """

    outcome: Outcome
    pause_s: float = 0.0
    is_gone: bool = False


def answer_of(status_code: int, retry_after: str, now: float) -> ReceiverAnswer:
    """An answer by its status and its header ``Retry-After``: so many seconds, or a date of HTTP.

    Args:
        status_code: The status.
        retry_after: The header; empty if there was none.
        now: Seconds since the epoch.
    """
    if 200 <= status_code <= 299:
        return ReceiverAnswer(status_code=status_code)
    wait_s = _asked_s(retry_after.strip(), now) if status_code in BUSY else 0.0
    return ReceiverAnswer(status_code=status_code, error=f"answered {status_code}", wait_s=wait_s)


def _asked_s(retry_after: str, now: float) -> float:
    seconds = _SECONDS.fullmatch(retry_after)
    asked_s = float(seconds[1][:_MOST_DIGITS]) if seconds else _date(retry_after) - now
    return min(max(0.0, asked_s), MOST_WAIT_S)


def _date(text: str) -> float:
    """A date of HTTP (RFC 9110), in seconds since the epoch; one that is none is long over."""
    try:
        found = parsedate_to_datetime(text[:_MOST_DATE_CHARS])
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0


def verdict_of(answer: ReceiverAnswer, failures: int, turn_id: str) -> Verdict:
    """What follows an answer after so many failures of the same event."""
    if answer.error is None:
        return Verdict(outcome=Outcome.DELIVERED)
    if answer.status_code == GONE:
        return Verdict(outcome=Outcome.GIVEN_UP, is_gone=True)
    if failures >= len(PAUSES_S):
        return Verdict(outcome=Outcome.GIVEN_UP)
    pause_s = max(PAUSES_S[failures], answer.wait_s)
    return Verdict(outcome=Outcome.FAILED, pause_s=pause_s * (1 + JITTER * _share(turn_id)))


def _share(turn_id: str) -> float:
    """From 0 to 1, another for each turn."""
    return crc32(turn_id.encode()) / 2**32


def admitted(waiting: Mapping[Lane, int], busy: Mapping[Lane, int]) -> list[Lane]:
    """The lanes that may send another request now, the first one first; a lane may be named several times.

    A place goes to the tenant with the fewest requests under way, and of its hosts to the one with the fewest, so a
    backlog, however old it is, gives nobody a second place before others have their first.

    Args:
        waiting: How many deliveries wait in each lane; among equals the lane that is named first goes first.
        busy: How many requests of each lane are under way.
    """
    left, hosts, tenants = Counter(waiting), _by_host(busy), _by_tenant(busy)
    chosen: list[Lane] = []
    while lanes := _with_room([lane for lane in left if left[lane]], hosts, tenants):
        lane = min(lanes, key=lambda each: (tenants[each.tenant], hosts[each.host]))
        left[lane] -= 1
        hosts[lane.host] += 1
        tenants[lane.tenant] += 1
        chosen.append(lane)
    return chosen


def full_of(busy: Mapping[Lane, int]) -> Full:
    """The hosts and the tenants that have as many requests under way as they may."""
    tenants = _by_tenant(busy)
    most = _most_a_tenant(tenants.total())
    return Full(
        hosts=[host for host, number in _by_host(busy).items() if number >= IN_FLIGHT_A_HOST],
        tenants=[tenant for tenant, number in tenants.items() if number >= most],
    )


def _with_room(lanes: Sequence[Lane], hosts: Counter[str], tenants: Counter[str]) -> list[Lane]:
    if (total := tenants.total()) >= IN_FLIGHT:
        return []
    most = _most_a_tenant(total)
    return [lane for lane in lanes if hosts[lane.host] < IN_FLIGHT_A_HOST and tenants[lane.tenant] < most]


def _most_a_tenant(total: int) -> int:
    """How many requests a tenant may have under way: as many as are left for others; the last place is a first one."""
    return min(IN_FLIGHT_A_TENANT, max(1, IN_FLIGHT - total))


def _by_host(busy: Mapping[Lane, int]) -> Counter[str]:
    return Counter(lane.host for lane in Counter(busy).elements())


def _by_tenant(busy: Mapping[Lane, int]) -> Counter[str]:
    return Counter(lane.tenant for lane in Counter(busy).elements())
