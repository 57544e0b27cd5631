"""The order of a batch's turns in their sessions: the places of many turns, taken together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from api_gateway.database import chunks_of
from harness_worker.sessions import FOLLOW, UNFINISHED_OF_SESSIONS, take_places


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlace:
    """A turn's place in its session.

    Args:
        session_id: Which session.
        number: The turn's number in the session, from 1.
        is_behind: Whether it waits for the end of another turn.
        is_followed: Whether another turn of its batch waits for its end.
    """

    session_id: str
    number: int
    is_behind: bool
    is_followed: bool


async def taken_places(connection: AsyncConnection, tenant: str, session_ids: Sequence[str]) -> list[BatchPlace]:
    """Take the next places of sessions in the transaction that fills them; other requests wait for its commit.

    Args:
        connection: The database.
        tenant: Whose sessions.
        session_ids: The session of each turn, in the order of the turns.

    Returns:
        The place of each turn, in the same order.
    """
    wanted = Counter(session_ids)
    last: dict[str, int] = {}
    for ids in chunks_of(sorted(wanted)):
        last |= await _taken(connection, tenant, {each: wanted[each] for each in ids})
    # All by one statement: others who lock turns of several sessions have the database's order, not Python's.
    busy = await _followed(connection, tenant, [each for each in last if last[each] > wanted[each]])
    return placed(session_ids, last, busy)


def placed(session_ids: Sequence[str], last: Mapping[str, int], busy: set[str]) -> list[BatchPlace]:
    """The places of turns.

    Args:
        session_ids: The session of each turn.
        last: The number of each session's last turn, including these.
        busy: The sessions that had an unfinished turn before these.
    """
    left = Counter(session_ids)
    first = {each: last[each] - left[each] + 1 for each in left}
    places: list[BatchPlace] = []
    for session_id in session_ids:
        left[session_id] -= 1
        number = last[session_id] - left[session_id]
        is_behind = session_id in busy or number > first[session_id]
        places.append(
            BatchPlace(session_id=session_id, number=number, is_behind=is_behind, is_followed=left[session_id] > 0)
        )
    return places


async def _taken(connection: AsyncConnection, tenant: str, wanted: Mapping[str, int]) -> dict[str, int]:
    rows = [{"tenant": tenant, "id": session_id, "turns": more} for session_id, more in wanted.items()]
    found = await connection.execute(take_places(connection.dialect.name), rows)
    return {row.id: row.turns for row in found}


async def _followed(connection: AsyncConnection, tenant: str, session_ids: Sequence[str]) -> set[str]:
    """Which of these sessions have unfinished turns; from now on the last such turn wakes the next one when it ends."""
    if not session_ids:
        return set()
    values = {"of_tenant": tenant, "of_sessions": list(session_ids)}
    ahead = (await connection.execute(UNFINISHED_OF_SESSIONS, values)).all()
    last = {row.session_id: row.id for row in ahead}
    for some in chunks_of(list(last.values())):
        await connection.execute(FOLLOW, {"ahead": list(some)})
    return set(last)
