"""``ports.Artifacts`` on SQLite and Postgres; each method is one short transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Delete, Engine, String, bindparam, delete, literal_column, select, tuple_

from harness_worker.adapters.sql.transactions import read, write_all
from harness_worker.ports import ExpiredArtifact
from harness_worker.schema import artifacts, db_now, turns

_fork: Final = turns.alias("fork")
_LINE: Final = select(bindparam("session_id", type_=String).label("id")).cte("line", recursive=True)
_SESSIONS: Final = _LINE.union(
    select(turns.c.session_id)
    .join(_fork, _fork.c.forked_from == turns.c.id)
    .join(_LINE, _LINE.c.id == _fork.c.session_id)
    .where(_fork.c.tenant == bindparam("tenant"), _fork.c.number == literal_column("1"))
)
"""A session, and those that it descends from by forks."""

_URL: Final = select(artifacts.c.url).where(
    artifacts.c.id == bindparam("artifact_id"),
    artifacts.c.tenant == bindparam("tenant"),
    artifacts.c.session_id.in_(select(_SESSIONS.c.id)),
    artifacts.c.expires_at > db_now(),
)
_EXPIRED: Final = (
    select(artifacts.c.expires_at, artifacts.c.id, artifacts.c.url)
    .where(
        artifacts.c.expires_at <= select(db_now()).scalar_subquery(),
        tuple_(artifacts.c.expires_at, artifacts.c.id) > tuple_(bindparam("after_at"), bindparam("after_id")),
    )
    .order_by(artifacts.c.expires_at, artifacts.c.id)
    .limit(bindparam("most"))
)
_FORGET: Final[Delete] = delete(artifacts).where(artifacts.c.id.in_(bindparam("ids", expanding=True)))


class SqlArtifacts:
    """Implements ``ports.Artifacts`` on SQLite or Postgres.

    Args:
        engine: Made by ``make_engine``.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def url_of(self, artifact_id: str, *, tenant: str, session_id: str) -> str | None:
        """See ``ports.Artifacts.url_of``."""
        values = {"artifact_id": artifact_id, "tenant": tenant, "session_id": session_id}
        return read(self._engine, lambda connection: connection.execute(_URL, values).scalar_one_or_none())

    def expired(self, limit: int, *, after: ExpiredArtifact | None = None) -> list[ExpiredArtifact]:
        """See ``ports.Artifacts.expired``."""
        after_at, after_id = (0.0, "") if after is None else (after.expires_at, after.id)
        values = {"most": limit, "after_at": after_at, "after_id": after_id}
        rows = read(self._engine, lambda connection: connection.execute(_EXPIRED, values).all())
        return [ExpiredArtifact(*row) for row in rows]

    def forget(self, artifact_ids: Sequence[str]) -> None:
        """See ``ports.Artifacts.forget``."""
        write_all(self._engine, [(_FORGET, [{"ids": list(artifact_ids)}])])
