"""Totals of the turns that have ended: what counters are made of, read from the journal bit by bit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, and_, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from harness_worker.schema import agents, db_now, tool_calls, turns
from harness_worker.wire import OWN_TOOLS, StopReason, TurnStatus

LAG_S: Final = 2.0
"""Ends younger than this are left for the next time: their transactions may not all be visible yet."""

TOKEN_KINDS: Final = ("input", "output", "cache_read", "cache_write")
NOT_IN_CATALOGUE: Final = ""
"""Stands for tools that neither an app nor the harness has: a model may invent any number of names."""

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
"""How turns end. A rate begins with the second value that is told, so each of these is told from 0 on."""

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


class EndedTurns:
    """Adds up the turns that ended since this was made. Not to be used by two tasks at once."""

    def __init__(self) -> None:
        self.totals = Totals()
        self._born = monotonic()
        self._until: float | None = None

    async def update(self, connection: AsyncConnection) -> None:
        """Add what has ended since the last time; raises SQLAlchemy's errors, and has then added nothing."""
        now: float = (await connection.execute(select(db_now()))).scalar_one()
        since = self._until if self._until is not None else now - (monotonic() - self._born)
        until = max(since, now - LAG_S)
        ended = and_(turns.c.finished_at > since, turns.c.finished_at <= until)
        by_turn = (await connection.execute(_turns_query(ended))).all()
        by_call = (await connection.execute(_calls_query(ended))).all()
        catalogue = {row.name: row.tools for row in await connection.execute(select(agents.c.name, agents.c.tools))}
        known = OWN_TOOLS | {tool["name"] for tools in catalogue.values() for tool in tools}
        self._until = until
        self._begin(catalogue)
        self._add_turns(by_turn)
        self._add_calls(by_call, known)

    def _begin(self, names: Iterable[str]) -> None:
        totals = self.totals
        for agent in names:
            for status, reasons in ENDS.items():
                for reason in reasons:
                    totals.turns[agent, status, reason] += 0
            for sums in (totals.seconds, totals.queued_s, totals.dollars):
                sums[agent,] += 0
            for kind in TOKEN_KINDS:
                totals.tokens[agent, kind] += 0

    def _add_turns(self, rows: Iterable[Row[Any]]) -> None:
        totals = self.totals
        for row in rows:
            totals.turns[row.agent, row.status, row.stop_reason or ""] += row.number
            totals.seconds[row.agent,] += row.seconds
            totals.queued_s[row.agent,] += row.queued_s
            totals.dollars[row.agent,] += row.dollars
            for kind in TOKEN_KINDS:
                totals.tokens[row.agent, kind] += getattr(row, kind)

    def _add_calls(self, rows: Iterable[Row[Any]], known: Set[str]) -> None:
        for row in rows:
            tool = row.tool if row.tool in known else NOT_IN_CATALOGUE
            self.totals.calls[tool, row.kind or ""] += row.number


def _turns_query(ended: ColumnElement[bool]) -> Any:  # noqa: ANN401 - a select of many columns
    started_at = func.coalesce(turns.c.started_at, turns.c.finished_at)
    labels = (turns.c.agent, turns.c.status, turns.c.stop_reason)
    tokens = [func.sum(turns.c.used[f"{kind}_tokens"].as_float()).label(kind) for kind in TOKEN_KINDS]
    return (
        select(
            *labels,
            func.count().label("number"),
            func.sum(turns.c.finished_at - turns.c.created_at).label("seconds"),
            func.sum(started_at - turns.c.created_at).label("queued_s"),
            func.sum(turns.c.used["dollars"].as_float()).label("dollars"),
            *tokens,
        )
        .where(ended)
        .group_by(*labels)
    )


def _calls_query(ended: ColumnElement[bool]) -> Any:  # noqa: ANN401 - a select of a few columns
    kind = tool_calls.c.outcome["kind"].as_string().label("kind")
    joined = tool_calls.join(turns, turns.c.id == tool_calls.c.turn_id)
    return (
        select(tool_calls.c.tool, kind, func.count().label("number"))
        .select_from(joined)
        .where(ended, tool_calls.c.step >= turns.c.first_step)  # a fork's others were its origin's
        .group_by(tool_calls.c.tool, kind)
    )
