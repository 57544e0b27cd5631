"""Cancelling turns and seeing them end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from harness_worker.client.client import GatewayClient
from harness_worker.wire import JsonObject, TurnStatus, has_ended

if TYPE_CHECKING:
    from harness_worker.ports import Clock

OPEN: Final = (TurnStatus.QUEUED, TurnStatus.RUNNING, TurnStatus.REQUIRES_ACTION, TurnStatus.RUNNING)
"""The statuses in the order of the search: a turn that starts or is answered meanwhile is found in the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """A turn after its cancel.

    Args:
        turn: The turn as it was last seen.
        was_over: Whether it had already ended before.
    """

    turn: JsonObject
    was_over: bool

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return has_ended(self.turn)


def cancel_turns(client: GatewayClient, clock: Clock, ids: Sequence[str], wait_s: float) -> list[Cancelled]:
    """Cancel turns, all at once, and poll them until they have ended or ``wait_s`` seconds have passed.

    After the first cancel, a gateway that restarts is waited for.

    Raises:
        StackUnreachable: Nothing answers, so none is cancelled, unless the gateway went away later and stayed away.
        RequestRefused: There is no such turn, so none is cancelled.
    """
    return _cancelled(client, clock, {turn_id: has_ended(client.turn(turn_id)) for turn_id in ids}, wait_s)


def cancel_open_turns(
    client: GatewayClient, clock: Clock, metadata: Mapping[str, str], wait_s: float
) -> list[Cancelled]:
    """Cancel all unfinished turns with this metadata, those first that have not started; else like ``cancel_turns``.

    Raises:
        StackUnreachable: As in ``cancel_turns``.
        RequestRefused: The gateway refuses to list or to cancel.
    """
    return _cancelled(client, clock, dict.fromkeys(_open_turns(client, metadata), False), wait_s)


def _open_turns(client: GatewayClient, metadata: Mapping[str, str]) -> Iterator[str]:
    for status in OPEN:
        yield from (turn["id"] for turn in client.turns(status=status, metadata=metadata))


def _cancelled(client: GatewayClient, clock: Clock, were_over: Mapping[str, bool], wait_s: float) -> list[Cancelled]:
    gateway = client.with_patience(clock=clock)
    give_up_at = clock.monotonic() + wait_s
    told = [Cancelled(turn=gateway.cancel(turn_id), was_over=was_over) for turn_id, was_over in were_over.items()]
    return [each if each.is_over else _awaited(gateway, each, give_up_at - clock.monotonic()) for each in told]


def _awaited(gateway: GatewayClient, cancelled: Cancelled, most_s: float) -> Cancelled:
    return replace(cancelled, turn=gateway.wait(cancelled.turn["id"], most_s, past_approvals=True))
