"""Where a turn stands in its session, and what becomes of those before it (``multitask``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from api_gateway.problems import Problem
from api_gateway.requests.turns import Multitask
from harness_worker.sessions import FOLLOW, INTERRUPT, UNFINISHED, take_place
from harness_worker.wire import QUEUE_LOOK_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A turn's place in its session.

    Args:
        number: Which turn of the session it is, from 1.
        now: The database's time when it took it, seconds since the epoch: later than that of the place before.
        ahead: The turns before it that have not ended, as (id, priority), in order.
    """

    number: int
    now: float
    ahead: tuple[tuple[str, str], ...]

    @property
    def look_at(self) -> float:
        """When somebody must look at the turn: now, unless it waits."""
        return self.now + QUEUE_LOOK_S if self.ahead else self.now


async def taken_place(connection: AsyncConnection, tenant: str, session_id: str, multitask: Multitask) -> Place:
    """Take the next place of a session, within the transaction that fills it; others wait for its commit.

    Raises:
        Problem: 409 ``session_busy``: the session has an unfinished turn, and the request would not have it wait.
    """
    session = {"of_tenant": tenant, "of_session": session_id}
    number, now = (await connection.execute(take_place(connection.dialect.name), session)).one()
    ahead = await _unfinished(connection, session) if number > 1 else []
    if ahead:
        await _settle(connection, ahead, session_id, multitask)
    return Place(number=number, now=now, ahead=tuple(ahead))


async def _unfinished(connection: AsyncConnection, session: dict[str, str]) -> list[tuple[str, str]]:
    return [(row.id, row.priority) for row in await connection.execute(UNFINISHED, session)]


async def _settle(
    connection: AsyncConnection, ahead: list[tuple[str, str]], session_id: str, multitask: Multitask
) -> None:
    ids: list[Any] = [turn_id for turn_id, _ in ahead]
    if multitask == "reject":
        detail = f"session {session_id!r} still works on turn {ids[-1]}; wait for its end, or ask with multitask"
        raise Problem("session_busy", f"{detail} 'enqueue' or 'interrupt'", extra={"turns": ids})
    if multitask == "interrupt":
        await connection.execute(INTERRUPT, {"ahead": ids})
    else:
        await connection.execute(FOLLOW, {"ahead": ids[-1:]})
