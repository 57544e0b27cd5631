"""Totals over the turns that have ended, exposed as counters: read from the journal bit by bit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, fields
from time import monotonic
from typing import Any, Final

from sqlalchemy import ColumnElement, Row
from sqlalchemy.ext.asyncio import AsyncConnection

from api_gateway.metrics.queries import CATALOGUE, NOW, TOKEN_KINDS, ended_after, ended_calls, ended_turns, slice_end
from harness_worker.wire import OWN_TOOLS, StopReason, TurnStatus

SETTLED_S: Final = 60.0
"""After how many seconds an end is settled. A turn's end has the time of its decision, but is visible only once it is
committed, after its transaction has waited for locks and whatever else. So ends younger than this are added up anew
each time; one that becomes visible later is missed."""

SLICE: Final = 5_000
"""How many turns are settled at a time."""

NOT_IN_CATALOGUE: Final = ""
"""The label of all tools that neither an app nor the harness has: a model may invent any number of names."""

ENDS: Final[Mapping[TurnStatus, frozenset[StopReason]]] = {
    TurnStatus.COMPLETED: frozenset({StopReason.END_TURN}),
    TurnStatus.INCOMPLETE: frozenset(
        {
            *(StopReason.MAX_STEPS, StopReason.DEADLINE, StopReason.BUDGET),
            *(StopReason.MAX_TOKENS, StopReason.REFUSAL, StopReason.NO_PROGRESS),
        }
    ),
    TurnStatus.FAILED: frozenset({StopReason.MODEL_ERROR, StopReason.SCRIPT_EXHAUSTED, StopReason.INTERNAL}),
    TurnStatus.CANCELLED: frozenset({StopReason.CANCELLED}),
}
"""All the ways in which turns end. A rate begins with the second value of a series, so each of these series begins
at 0."""

Key = tuple[str, ...]


def _sums() -> defaultdict[Key, float]:
    return defaultdict(float)


@dataclass(slots=True)
class Totals:
    """Sums since this process began, by labels.

    Args:
        turns: By agent, status and stop reason.
        seconds: From created to finished, by agent.
        queued_s: From created to started, by agent.
        tokens: By agent and kind.
        dollars: By agent.
        calls: By tool and outcome.
    """

    turns: defaultdict[Key, float] = field(default_factory=_sums)
    seconds: defaultdict[Key, float] = field(default_factory=_sums)
    queued_s: defaultdict[Key, float] = field(default_factory=_sums)
    tokens: defaultdict[Key, float] = field(default_factory=_sums)
    dollars: defaultdict[Key, float] = field(default_factory=_sums)
    calls: defaultdict[Key, float] = field(default_factory=_sums)

    def copy(self) -> Totals:
        """A copy to add to."""
        return Totals(**{each.name: getattr(self, each.name).copy() for each in fields(self)})

    def begin(self, agents: Iterable[str]) -> None:
        """Begin the series of these agents: sums to which nothing was added yet become 0."""
        for agent in agents:
            for status, reasons in ENDS.items():
                for reason in reasons:
                    self.turns[agent, status, reason] += 0
            for sums in (self.seconds, self.queued_s, self.dollars):
                sums[agent,] += 0
            for kind in TOKEN_KINDS:
                self.tokens[agent, kind] += 0

    def add_turns(self, rows: Iterable[Row[Any]]) -> None:
        """Add rows of ``queries.ended_turns``."""
        for row in rows:
            self.turns[row.agent, row.status, row.stop_reason or ""] += row.number
            self.seconds[row.agent,] += row.seconds
            self.queued_s[row.agent,] += row.queued_s
            self.dollars[row.agent,] += row.dollars
            for kind in TOKEN_KINDS:
                self.tokens[row.agent, kind] += getattr(row, kind)

    def add_calls(self, rows: Iterable[Row[Any]], known: Set[str]) -> None:
        """Add rows of ``queries.ended_calls``; ``known`` are the tools whose names may be labels."""
        for row in rows:
            tool = row.tool if row.tool in known else NOT_IN_CATALOGUE
            self.calls[tool, row.kind or ""] += row.number

    def raise_to(self, before: Totals) -> None:
        """Keep every sum from falling, even by a float's last digit: Prometheus takes a fall for a restart."""
        for each in fields(self):
            sums, least = getattr(self, each.name), getattr(before, each.name)
            sums.update({key: max(sums[key], value) for key, value in least.items()})


class EndedTurns:
    """Adds up the turns that have ended since it was created. Two tasks must not use it at once.

    Attributes:
        totals: The sums over all turns that the last update has seen.
    """

    def __init__(self) -> None:
        self.totals = Totals()
        self._settled = Totals()
        self._settled_until: float | None = None
        self._born = monotonic()

    async def update(self, connection: AsyncConnection) -> None:
        """Add the turns that have ended since the last update.

        Raises SQLAlchemy's errors, and may be cancelled if it takes too long: then ``totals`` stay as they were, but
        what was settled is not read again. So very many turns are added up in the course of several updates.
        """
        now: float = (await connection.execute(NOW)).scalar_one()
        since = self._settled_until if self._settled_until is not None else now - (monotonic() - self._born)
        until = max(since, now - SETTLED_S)
        catalogue = {row.name: row.tools for row in await connection.execute(CATALOGUE)}
        known = OWN_TOOLS | {tool["name"] for tools in catalogue.values() for tool in tools}
        await self._settle(connection, since, until, known)
        self._settled.begin(catalogue)
        totals = self._settled.copy()
        await _add(totals, connection, ended_after(until), known)
        totals.raise_to(self.totals)
        self.totals = totals

    async def _settle(self, connection: AsyncConnection, since: float, until: float, known: Set[str]) -> None:
        while self._settled_until is None or self._settled_until < until:
            found: float | None = (await connection.execute(slice_end(since, until, SLICE))).scalar()
            end = until if found is None else found
            await _add(self._settled, connection, ended_after(since, end), known)
            since = self._settled_until = end


async def _add(totals: Totals, connection: AsyncConnection, ended: ColumnElement[bool], known: Set[str]) -> None:
    """Add the turns that ``ended`` selects, or nothing if one of the two queries fails."""
    by_turn = (await connection.execute(ended_turns(ended))).all()
    by_tool = (await connection.execute(ended_calls(ended))).all()
    totals.add_turns(by_turn)
    totals.add_calls(by_tool, known)
