"""Which calls that have not started are sent again, so that lost messages are replaced and long queues not lengthened.

A visit cannot tell a lost message from one that waits in a queue, so the pauses between copies double. With the default
times, a call that never starts is sent again 2, 6, 14, 30 and 62 s after it was first sent, then every 64 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from harness_worker.core.decisions import Snapshot
from harness_worker.core.records import Call
from harness_worker.core.timing import Timing
from harness_worker.core.visits import look_period_s

LONGEST_PAUSE: Final = 16
"""The most look-ins between two copies of a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resend:
    """The calls to send now, and the number of look-ins since new calls were last sent."""

    calls: tuple[Call, ...]
    looks: int


def send_again(snapshot: Snapshot, waiting: tuple[Call, ...], *, timing: Timing) -> Resend:
    """Send lost calls again at once, and calls that merely have not started ever more rarely.

    Args:
        snapshot: The turn and its calls as the visit found them.
        waiting: Open calls that wait to be started, as they are now; a call to run again differs from the snapshot's.
        timing: The protocol's times.
    """
    if any(call not in snapshot.calls for call in waiting):
        return Resend(calls=waiting, looks=0)
    if waiting and _was_just_sent(waiting[0], snapshot, timing):
        return Resend(calls=(), looks=0)
    looks = snapshot.turn.looks + 1
    return Resend(calls=waiting if _is_due(looks) else (), looks=looks)


def _is_due(looks: int) -> bool:
    return looks & (looks - 1) == 0 or looks % LONGEST_PAUSE == 0


def _was_just_sent(call: Call, snapshot: Snapshot, timing: Timing) -> bool:
    """Whether the call before it in its chain, whose end sends it, has ended since the last look-in."""
    since = snapshot.now - look_period_s(snapshot.turn.looks, timing)
    return not call.is_read and any(_ended_since(each, since) for each in _before(call, snapshot.calls))


def _before(call: Call, calls: Sequence[Call]) -> list[Call]:
    return [each for each in calls if each.step == call.step and each.position < call.position and not each.is_read]


def _ended_since(call: Call, since: float) -> bool:
    return call.finished_at is not None and call.finished_at > since
