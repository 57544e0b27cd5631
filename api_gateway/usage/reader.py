"""Usage, added up from the journal: one turn's model calls and tools, and sums over many turns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Integer, Subquery, and_, cast, func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway.database import AnyRow, AnySelect
from api_gateway.requests.fields import METADATA_PREFIX
from api_gateway.requests.places import TenantPlaces
from api_gateway.turns.answers import Usage
from api_gateway.turns.narrowing import POSTGRES, metadata_text, narrowed
from api_gateway.turns.rows import usage_of
from api_gateway.usage.answers import ModelCall, ModelCallKind, ToolUsage, TurnUsage, UsageGroup, UsageReport, UsageSum
from api_gateway.usage.requests import UsageQuery
from harness_worker.schema import db_now, turn_events, turns
from harness_worker.wire import rfc3339

DAY_S: Final = 86_400
COUNTS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "steps", "tool_calls")
SUMS: Final = ("turns", *COUNTS, "dollars")

KINDS: Final[Mapping[str, ModelCallKind]] = {
    "model.completed": "step",
    "reflection.completed": "reflection",
    "compaction.completed": "compaction",
}
"""The kind of model call that each of these event types reports."""

TOOL: Final = "tool.completed"

_TOLD: Final = ("step", "model", "usage", "is_stub", "tool", "is_error", "elapsed_ms")
_EVENTS: Final = select(
    turn_events.c.type, turn_events.c.at, *(turn_events.c.data[name].label(name) for name in _TOLD)
).order_by(turn_events.c.seq)
"""The events' data about usage, null where an event has none; a model's text, which may be long, is not read."""


class UsageReader:
    """Reads what one tenant's turns have used. Every method is one transaction.

    Args:
        engine: The database.
        tenant: Whose turns.
        scans: The places for queries that may have to read all of the tenant's turns.
    """

    def __init__(self, engine: AsyncEngine, tenant: str, scans: TenantPlaces) -> None:
        self._engine = engine
        self._tenant = tenant
        self._scans = scans

    async def turn(self, turn_id: str) -> TurnUsage | None:
        """What one turn has used so far; ``None`` if there is no such turn."""
        found = select(turns.c.used, turns.c.delegated).where(turns.c.id == turn_id, turns.c.tenant == self._tenant)
        told = (turn_events.c.turn_id == turn_id, turn_events.c.type.in_((*KINDS, TOOL)))
        async with self._engine.connect() as connection:
            turn = (await connection.execute(found)).one_or_none()
            if turn is None:
                return None
            events = (await connection.execute(_EVENTS.where(*told))).all()
        calls = [_model_call(event) for event in events if event.type in KINDS and _was_asked(event)]
        tools = _tools(event for event in events if event.type == TOOL)
        total = Usage.model_validate(usage_of(turn.used, turn.delegated or {}))
        return TurnUsage(turn_id=turn_id, total=total, model_calls=calls, tools=tools)

    async def report(self, query: UsageQuery) -> UsageReport:
        """The sums over all turns that were made in the period asked for.

        Raises:
            Problem: 422 ``invalid_request``: the period lies in the future, or is too long; 503 ``not_ready``: others
                that read all turns of the tenant take too long.
        """
        async with self._scans.held(self._tenant), self._engine.connect() as connection:
            begin, end = query.span((await connection.execute(select(db_now()))).scalar_one())
            rows = (await connection.execute(self._sums(query, begin, end))).all()
        total = _sums_of(rows[0], "all_") if rows else {}
        return UsageReport(
            begin=rfc3339(begin) or "",
            end=rfc3339(end) or "",
            by=query.by,
            data=[UsageGroup(key=_key(row.key, query.by), **_sums_of(row)) for row in rows],
            groups=rows[0].groups if rows else 0,
            total=UsageSum(**total),
        )

    def _sums(self, query: UsageQuery, begin: float, end: float) -> AnySelect:
        """One row a group, each with the sums over all groups beside its own."""
        dialect = self._engine.dialect.name
        made = and_(turns.c.tenant == self._tenant, turns.c.created_at >= begin, turns.c.created_at < end)
        each = select(_grouped_by(query.by, dialect).label("key"), *_used()).where(made, *narrowed(query, dialect))
        groups = _groups(each.subquery())
        everything = [func.sum(groups.c[name]).over().label(f"all_{name}") for name in SUMS]
        order = (groups.c.key,) if query.by == "day" else (groups.c.dollars, groups.c.turns, groups.c.key)
        return (
            select(groups, func.count().over().label("groups"), *everything)
            .order_by(*(column.desc() for column in order))
            .limit(query.limit)
        )


def _used() -> Sequence[ColumnElement[Any]]:
    return [turns.c.used[name].as_float().label(name) for name in (*COUNTS, "dollars")]


def _groups(each: Subquery) -> Subquery:
    sums = [func.coalesce(func.sum(each.c[name]), 0).label(name) for name in (*COUNTS, "dollars")]
    return select(each.c.key, func.count().label("turns"), *sums).group_by(each.c.key).subquery()


def _grouped_by(by: str, dialect: str) -> ColumnElement[Any]:
    if by.startswith(METADATA_PREFIX):
        return metadata_text(by.removeprefix(METADATA_PREFIX), dialect)
    if by == "day":
        days = turns.c.created_at / DAY_S
        return cast(func.floor(days) if dialect == POSTGRES else days, Integer)  # SQLite truncates, and may lack floor
    if by == "model":
        return _LAST_MODEL
    return turns.c["session_id" if by == "session" else by]


_LAST_MODEL: Final = (
    select(turn_events.c.data["model"].as_string())
    .where(turn_events.c.turn_id == turns.c.id, turn_events.c.type == "model.completed")
    .order_by(turn_events.c.seq.desc())
    .limit(1)
    .scalar_subquery()
)
"""The model of a turn's last answer; earlier answers differ only if the agent was changed meanwhile."""


def _key(key: Any, by: str) -> str | None:  # noqa: ANN401 - as the database has it
    return datetime.fromtimestamp(key * DAY_S, UTC).date().isoformat() if by == "day" else key


def _sums_of(row: AnyRow, prefix: str = "") -> dict[str, Any]:
    counts = {name: int(getattr(row, prefix + name)) for name in SUMS if name != "dollars"}
    return {**counts, "dollars": float(getattr(row, f"{prefix}dollars"))}


def _was_asked(event: AnyRow) -> bool:
    """Whether a model was asked; a stub may stand for a call that was not even made."""
    usage: Mapping[str, Any] = event.usage or {}
    return not event.is_stub or any(usage.values())


def _model_call(event: AnyRow) -> ModelCall:
    known = {"step": event.step, "kind": KINDS[event.type], "model": event.model, "at": rfc3339(event.at)}
    return ModelCall.model_validate({**(event.usage or {}), **known})


def _tools(completed: Iterable[AnyRow]) -> list[ToolUsage]:
    by_tool: defaultdict[str, list[AnyRow]] = defaultdict(list)
    for event in completed:
        by_tool[event.tool].append(event)
    return [
        ToolUsage(
            tool=tool,
            calls=len(ended),
            failures=sum(event.is_error for event in ended),
            elapsed_ms=sum(event.elapsed_ms for event in ended),
        )
        for tool, ended in sorted(by_tool.items())
    ]
