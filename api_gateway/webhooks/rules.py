"""Pure rules of delivery: what follows an attempt, and which deliveries start next."""

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

BACKOFF_S: Final = (5.0, 30.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0)
"""The delays before each retry of an event; when the attempt after the last of them fails, the event is given up."""

JITTER: Final = 0.1
"""The share by which a delay may be longer, so that deliveries that failed together are not retried together."""

MOST_RETRY_AFTER_S: Final = 3_600.0
"""The longest delay that an endpoint may ask for by ``Retry-After``, in seconds."""

IN_FLIGHT: Final = 64
"""The most requests that one process has under way."""

IN_FLIGHT_A_HOST: Final = 8
"""The most of them to one host, so that one that hangs delays no other."""

IN_FLIGHT_A_TENANT: Final = 16
"""The most of them for one tenant; fewer if others have many, as a tenant may never have more than are left free."""

GONE: Final = 410
BUSY: Final = frozenset({429, 503})
_SECONDS: Final = re.compile(r"0*([0-9]+)")
_MOST_DATE_CHARS: Final = 64
_MOST_DIGITS: Final = 9
"""How many digits of a number are read; that many already exceed ``MOST_RETRY_AFTER_S``."""


class DeliveryOutcome(StrEnum):
    """How an attempt ended."""

    DELIVERED = "delivered"
    FAILED = "failed"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The unit by which requests are counted: those of one tenant to one host.

    Args:
        tenant: The tenant whose turns are reported.
        host: The host of the endpoint.
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
    """The hosts and tenants that may have no further request under way.

    Args:
        hosts: Hosts of endpoints.
        tenants: Tenants.
    """

    hosts: Sequence[str] = ()
    tenants: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverAnswer:
    """An endpoint's answer to an attempt.

    Args:
        status_code: Its status; ``None`` if there was no answer.
        error: Why the attempt failed, in words; ``None`` if it succeeded.
        retry_after_s: The delay that it asks for before the next attempt.
    """

    status_code: int | None = None
    error: str | None = None
    retry_after_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What follows an attempt.

    Args:
        outcome: How it ended.
        retry_in_s: The delay before the next attempt; 0 if there is none.
        is_gone: Whether the endpoint wants no further event of this turn.
    """

    outcome: DeliveryOutcome
    retry_in_s: float = 0.0
    is_gone: bool = False


def answer_of(status_code: int, retry_after: str, now: float) -> ReceiverAnswer:
    """The answer with this status and this header ``Retry-After``, which is a number of seconds or an HTTP date.

    Args:
        status_code: The status.
        retry_after: The header; empty if there is none.
        now: Seconds since the epoch.
    """
    if 200 <= status_code <= 299:
        return ReceiverAnswer(status_code=status_code)
    retry_after_s = _retry_after_s(retry_after.strip(), now) if status_code in BUSY else 0.0
    return ReceiverAnswer(status_code=status_code, error=f"answered {status_code}", retry_after_s=retry_after_s)


def _retry_after_s(retry_after: str, now: float) -> float:
    seconds = _SECONDS.fullmatch(retry_after)
    asked_s = float(seconds[1][:_MOST_DIGITS]) if seconds else _date(retry_after) - now
    return min(max(0.0, asked_s), MOST_RETRY_AFTER_S)


def _date(text: str) -> float:
    """An HTTP date (RFC 9110) in seconds since the epoch; 0 for any other text."""
    try:
        found = parsedate_to_datetime(text[:_MOST_DATE_CHARS])
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0


def verdict_of(answer: ReceiverAnswer, failures: int, turn_id: str) -> Verdict:
    """What follows an answer, after ``failures`` failed attempts to deliver the same event."""
    if answer.error is None:
        return Verdict(outcome=DeliveryOutcome.DELIVERED)
    if answer.status_code == GONE:
        return Verdict(outcome=DeliveryOutcome.GIVEN_UP, is_gone=True)
    if failures >= len(BACKOFF_S):
        return Verdict(outcome=DeliveryOutcome.GIVEN_UP)
    delay_s = max(BACKOFF_S[failures], answer.retry_after_s)
    return Verdict(outcome=DeliveryOutcome.FAILED, retry_in_s=delay_s * (1 + JITTER * _share(turn_id)))


def _share(turn_id: str) -> float:
    """A number from 0 to 1 that depends on the turn alone."""
    return crc32(turn_id.encode()) / 2**32


def admitted(waiting: Mapping[Lane, int], busy: Mapping[Lane, int]) -> list[Lane]:
    """The lanes that may start another request now, in order; a lane may be named several times.

    A place goes to the tenant with the fewest requests under way, and of its hosts to the one with the fewest, so that
    a backlog, however old, gives nobody a second place before others have their first.

    Args:
        waiting: How many deliveries wait in each lane; among equals, the lane that comes first goes first.
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
    """The hosts and tenants that have as many requests under way as they may."""
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
    """How many requests a tenant may have under way: as many as are left free, but at least one, the first."""
    return min(IN_FLIGHT_A_TENANT, max(1, IN_FLIGHT - total))


def _by_host(busy: Mapping[Lane, int]) -> Counter[str]:
    return Counter(lane.host for lane in Counter(busy).elements())


def _by_tenant(busy: Mapping[Lane, int]) -> Counter[str]:
    return Counter(lane.tenant for lane in Counter(busy).elements())
