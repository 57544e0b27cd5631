"""Cancelling turns and seeing them end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from harness_worker.entrypoints.client import GatewayClient, JsonObject
from harness_worker.entrypoints.patience import has_ended
from harness_worker.ports import Clock

LOOK_S: Final = 0.05


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
    """Cancel turns, all at once, and look at them until they have ended or ``wait_s`` seconds have passed.

    Raises:
        RequestRefused: There is no such turn; none is cancelled then.
    """
    before = {turn_id: client.turn(turn_id) for turn_id in ids}
    give_up_at = clock.monotonic() + wait_s
    told = [Cancelled(turn=client.cancel(turn_id), was_over=has_ended(before[turn_id])) for turn_id in ids]
    while not all(each.is_over for each in told) and clock.monotonic() < give_up_at:
        clock.wait(LOOK_S)
        told = [each if each.is_over else replace(each, turn=client.turn(each.turn["id"])) for each in told]
    return told
