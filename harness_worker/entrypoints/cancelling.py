"""Cancelling turns and seeing them end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness_worker.entrypoints.gateway_client.client import GatewayClient, JsonObject
from harness_worker.entrypoints.gateway_client.patience import PatientGateway, has_ended
from harness_worker.ports import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """A turn after its cancel.

    Args:
        turn: As it was seen last.
        was_over: Whether it had ended before.
    """

    turn: JsonObject
    was_over: bool

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return has_ended(self.turn)


def cancel_turns(client: GatewayClient, clock: Clock, ids: Sequence[str], wait_s: float) -> list[Cancelled]:
    """Cancel turns, all at once, and poll them until they have ended or ``wait_s`` seconds have passed.

    From the first cancel on, a gateway that restarts is waited for, as long as :class:`PatientGateway` does.

    Raises:
        StackUnreachable: Nothing answers; none is cancelled then, unless it went away afterwards and stayed away.
        RequestRefused: There is no such turn; none is cancelled then.
    """
    before = {turn_id: client.turn(turn_id) for turn_id in ids}
    gateway = PatientGateway(client, clock)
    give_up_at = clock.monotonic() + wait_s
    told = [Cancelled(turn=gateway.cancel(turn_id), was_over=has_ended(before[turn_id])) for turn_id in ids]
    return [each if each.is_over else _awaited(gateway, each, give_up_at - clock.monotonic()) for each in told]


def _awaited(gateway: PatientGateway, cancelled: Cancelled, most_s: float) -> Cancelled:
    turn_id = cancelled.turn["id"]
    return replace(cancelled, turn=gateway.awaited(lambda: gateway.turn(turn_id), has_ended, most_s))
