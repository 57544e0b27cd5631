"""The calls of several turns: how long they are, and which of them, or of turns below, may wait for a person."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, case, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from api_gateway.database import AnyRow
from api_gateway.listing import MOST_BYTES, octets
from api_gateway.turns.rows import question_of
from harness_worker.schema import tool_calls, turns
from harness_worker.wire import FINAL_STATUSES, TurnStatus

CallsByTurn: TypeAlias = Mapping[str, Sequence[AnyRow]]
"""Rows of ``tool_calls``, by turn."""

_UNANSWERED: Final = (
    tool_calls.c.approval.is_not(None),
    tool_calls.c.outcome.is_(None),
    tool_calls.c.approval["decision"].as_string().is_(None),
)
"""Conditions that every call waiting for approval meets. Answers, which may be as long as a body, are not read."""

_BYTES: Final = func.sum(octets(tool_calls.c.arguments) + octets(tool_calls.c.approval) + octets(tool_calls.c.outcome))


def call_bytes(*which: ColumnElement[bool]) -> ColumnElement[int]:
    """The size in bytes of the calls of a row of ``turns``; of those that meet ``which``, if it is given."""
    return func.coalesce(select(_BYTES).where(tool_calls.c.turn_id == turns.c.id, *which).scalar_subquery(), 0)


WAITING_BYTES: Final = case((turns.c.status == TurnStatus.REQUIRES_ACTION, call_bytes(*_UNANSWERED)), else_=0)
"""The size in bytes of the calls for which a row of ``turns`` waits for people."""


async def pending_approvals(connection: AsyncConnection, turn_ids: Sequence[str]) -> CallsByTurn:
    """The calls of these turns that may wait for a person, by turn."""
    return await calls_by_turn(connection, turn_ids, *_UNANSWERED)


async def calls_by_turn(
    connection: AsyncConnection, turn_ids: Sequence[str], *which: ColumnElement[bool]
) -> CallsByTurn:
    """The calls of these turns, by step and position; empty for a turn without calls. No turns take no query."""
    found: defaultdict[str, list[AnyRow]] = defaultdict(list)
    if turn_ids:
        calls = select(tool_calls).where(tool_calls.c.turn_id.in_(turn_ids), *which)
        for row in await connection.execute(calls.order_by(tool_calls.c.step, tool_calls.c.position)):
            found[row.turn_id].append(row)
    return found


async def within_bytes_below(connection: AsyncConnection, rows: Sequence[AnyRow]) -> Sequence[AnyRow]:
    """The first of these rows of ``turns`` that have no more than ``MOST_BYTES`` of :func:`approvals_below`, or one."""
    below = {row.id: _noticed(row) for row in rows}
    sizes = await _waiting_bytes(connection, _all_of(below))
    total = 0
    for place, row in enumerate(rows):
        total += sum(sizes.get(each, 0) for each in below[row.id])
        if place > 0 and total > MOST_BYTES:
            return rows[:place]
    return rows


async def _waiting_bytes(connection: AsyncConnection, turn_ids: Sequence[str]) -> Mapping[str, int]:
    """The size in bytes of the calls for which these turns may wait for people. No turns take no query."""
    if not turn_ids:
        return {}
    waiting = select(tool_calls.c.turn_id, _BYTES).where(tool_calls.c.turn_id.in_(turn_ids), *_UNANSWERED)
    found = await connection.execute(waiting.group_by(tool_calls.c.turn_id))
    return dict(found.all())


async def approvals_below(connection: AsyncConnection, rows: Sequence[AnyRow]) -> CallsByTurn:
    """The calls that may wait for a person in turns below these rows of ``turns``, by the id of the row.

    Only turns that the row has noted as waiting are looked at.
    """
    below = {row.id: _noticed(row) for row in rows}
    found = await pending_approvals(connection, _all_of(below))
    return {turn_id: [call for each in ids for call in found[each]] for turn_id, ids in below.items()}


async def asking_below(connection: AsyncConnection, rows: Sequence[AnyRow]) -> Mapping[str, Collection[str]]:
    """The turns below these rows of ``turns`` that wait for a person, by the id of the row.

    As with :func:`approvals_below`, but the calls' arguments, which may be long, are not read.
    """
    below = {row.id: _noticed(row) for row in rows}
    asking = await _asking(connection, _all_of(below))
    return {turn_id: asking.intersection(ids) for turn_id, ids in below.items()}


async def _asking(connection: AsyncConnection, turn_ids: Sequence[str]) -> frozenset[str]:
    """Those of these turns that wait for a person. No turns take no query."""
    if not turn_ids:
        return frozenset()
    read = (tool_calls.c.turn_id, tool_calls.c.status, tool_calls.c.approval, tool_calls.c.outcome)
    calls = await connection.execute(select(*read).where(tool_calls.c.turn_id.in_(turn_ids), *_UNANSWERED))
    return frozenset(call.turn_id for call in calls if question_of(call) is not None)


def _all_of(below: Mapping[str, Sequence[str]]) -> Sequence[str]:
    return sorted({each for ids in below.values() for each in ids})


def _noticed(row: AnyRow) -> list[str]:
    parks: Sequence[Mapping[str, Any]] = row.parked_below or ()
    return [] if row.status in FINAL_STATUSES else [park["turn_id"] for park in parks]
