"""Which of a tenant's turns a query selects: the conditions that lists of turns and sums over them have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, String, func, select

from api_gateway.requests.queries import Narrowing
from harness_worker.schema import turns

POSTGRES: Final = "postgresql"


def narrowed(query: Narrowing, dialect: str) -> Sequence[ColumnElement[bool]]:
    """The query's conditions on rows of ``turns``."""
    wanted = query.model_dump(include={"status", "session_id", "agent", "batch_id", "parent_id"}, exclude_none=True)
    equal = [turns.c[name] == value for name, value in wanted.items()]
    if _is_open(query):  # implied by the status, but needed for the index of open turns to be used
        equal.append(turns.c.finished_at.is_(None))
    elif query.status is not None and not is_selective(query):  # likewise, unless an index finds fewer turns
        equal.append(turns.c.finished_at.is_not(None))
    return [*equal, *(metadata_text(key, dialect) == value for key, value in query.metadata.items())]


def is_selective(query: Narrowing) -> bool:
    """Whether an index finds the turns, which are few of the tenant's."""
    return _is_open(query) or (query.session_id, query.batch_id, query.parent_id) != (None, None, None)


def may_scan(query: Narrowing) -> bool:
    """Whether all of a tenant's turns may have to be read to find those that the query selects."""
    return not is_selective(query) and (query.agent is not None or bool(query.metadata))


def _is_open(query: Narrowing) -> bool:
    return query.status is not None and not query.status.is_final


def metadata_text(key: str, dialect: str) -> ColumnElement[Any]:
    """The metadata's text under the key, null if there is none; the key is passed as data, not as a JSON path."""
    if dialect == POSTGRES:
        return turns.c.metadata.op("->>", return_type=String())(key)
    pairs: Any = func.json_each(turns.c.metadata).table_valued("key", "value")
    return select(pairs.c.value).where(pairs.c.key == key).limit(1).scalar_subquery()
