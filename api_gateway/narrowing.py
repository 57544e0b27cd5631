"""Which of a tenant's turns are meant: the conditions that lists of them and sums over them have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, String, func, select

from api_gateway.requests import Narrowing
from harness_worker.schema import turns

POSTGRES: Final = "postgresql"


def narrowed(query: Narrowing, dialect: str) -> Sequence[ColumnElement[bool]]:
    """Conditions on ``turns`` of everything that the query asks for."""
    wanted = query.model_dump(include={"status", "session_id", "agent", "batch_id", "parent_id"}, exclude_none=True)
    equal = [turns.c[name] == value for name, value in wanted.items()]
    return [*equal, *(metadata_text(key, dialect) == value for key, value in query.metadata.items())]


def metadata_text(key: str, dialect: str) -> ColumnElement[Any]:
    """What the metadata hold under the key, null if nothing; the key is data, never part of a JSON path."""
    if dialect == POSTGRES:
        return turns.c.metadata.op("->>", return_type=String())(key)
    pairs: Any = func.json_each(turns.c.metadata).table_valued("key", "value")
    return select(pairs.c.value).where(pairs.c.key == key).limit(1).scalar_subquery()
