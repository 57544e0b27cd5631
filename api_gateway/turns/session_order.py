"""A turn's place in its session, and what happens to the turns before it (``multitask``)."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from api_gateway.problems import Problem
from api_gateway.requests.turns import Multitask
from harness_worker.sessions import FOLLOW, INTERRUPT, UNFINISHED, take_place
from harness_worker.wire import QUEUE_LOOK_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A turn's place in its session.

    Args:
        number: The turn's number in the session, from 1.
        now: The database's time when the place was taken, seconds since the epoch; later than that of the one before.
        ahead: The unfinished turns before it, as (id, priority), in order.
    """

    number: int
    now: float
    ahead: tuple[tuple[str, str], ...]

    @property
    def look_at(self) -> float:
        """When the turn is due for a look, seconds since the epoch: now, or later if it waits for others."""
        return self.now + QUEUE_LOOK_S if self.ahead else self.now


async def taken_place(connection: AsyncConnection, tenant: str, session_id: str, multitask: Multitask) -> Place:
    """Take the next place of a session in the transaction that fills it; other requests wait for its commit.

    Raises:
        Problem: 409 ``session_busy``: the session has an unfinished turn, and the request does not want to wait.
    """
    session = {"of_tenant": tenant, "of_session": session_id}
    number, now = (await connection.execute(take_place(connection.dialect.name), session)).one()
    ahead = await _unfinished(connection, session) if number > 1 else []
    if ahead:
        await _settle(connection, ahead, session, multitask)
    return Place(number=number, now=now, ahead=tuple(ahead))


async def _unfinished(connection: AsyncConnection, session: dict[str, str]) -> list[tuple[str, str]]:
    return [(row.id, row.priority) for row in await connection.execute(UNFINISHED, session)]


async def _settle(
    connection: AsyncConnection, ahead: list[tuple[str, str]], session: dict[str, str], multitask: Multitask
) -> None:
    ids = [turn_id for turn_id, _ in ahead]
    if multitask == "reject":
        busy = f"session {session['of_session']!r} still works on turn {ids[-1]}"
        detail = f"{busy}; wait for its end, or set multitask to 'enqueue' or 'interrupt'"
        raise Problem("session_busy", detail, extra={"turns": ids})
    if multitask == "interrupt":
        await connection.execute(INTERRUPT, session)
    else:
        await connection.execute(FOLLOW, {"ahead": ids[-1:]})
