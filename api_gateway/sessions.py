"""Sessions, as the gateway reads them."""

from __future__ import annotations

from typing import Final

from pydantic import Field
from sqlalchemy import and_, select
from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway.database import AnyRow, AnySelect
from api_gateway.listing import newest_first, next_of
from api_gateway.requests.queries import PageQuery
from api_gateway.turns.answers import Answer
from harness_worker.schema import sessions, turns
from harness_worker.wire import TurnStatus, rfc3339


class Session(Answer):
    """A conversation: its turns run one at a time, in order. Times are RFC 3339 UTC."""

    id: str
    turns: int
    last_turn_id: str
    last_status: TurnStatus
    created_at: str
    updated_at: str = Field(description="when its last turn was made, started or ended")


class SessionPage(Answer):
    """Sessions, newest first; pass ``next`` as ``after`` to get the next page."""

    data: list[Session]
    next: str | None


_LAST_TURN: Final = and_(
    turns.c.tenant == sessions.c.tenant,
    turns.c.session_id == sessions.c.id,
    turns.c.number == sessions.c.turns,
)
_ROWS: Final[AnySelect] = select(
    sessions.c.id,
    sessions.c.turns,
    sessions.c.created_at,
    turns.c.id.label("last_turn_id"),
    turns.c.status,
    turns.c.created_at.label("made_at"),
    turns.c.started_at,
    turns.c.finished_at,
).join(turns, _LAST_TURN)


class Sessions:
    """Reads of one tenant's sessions. Every method is one transaction."""

    def __init__(self, engine: AsyncEngine, tenant: str) -> None:
        self._engine = engine
        self._rows = _ROWS.where(sessions.c.tenant == tenant)

    async def page(self, query: PageQuery) -> SessionPage:
        """One page, newest first, without sessions in which only agents have spoken to each other."""
        page = newest_first(self._rows.where(turns.c.parent_id.is_(None)), sessions, query)
        async with self._engine.connect() as connection:
            found = (await connection.execute(page)).all()
        shown = found[: query.limit]
        return SessionPage(data=[session_of(row) for row in shown], next=next_of(shown, len(found)))

    async def one(self, session_id: str) -> Session | None:
        """The session with that id; ``None`` if there is none."""
        async with self._engine.connect() as connection:
            row = (await connection.execute(self._rows.where(sessions.c.id == session_id))).one_or_none()
        return None if row is None else session_of(row)


def session_of(row: AnyRow) -> Session:
    """The session of a row of ``sessions`` joined with the id, the status and the times of its last turn."""
    changed_at = max(at for at in (row.made_at, row.started_at, row.finished_at) if at is not None)
    return Session(
        id=row.id,
        turns=row.turns,
        last_turn_id=row.last_turn_id,
        last_status=row.status,
        created_at=rfc3339(row.created_at) or "",
        updated_at=rfc3339(changed_at) or "",
    )
