"""How a database goes about the statements that a piece of code executes."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event

from harness_worker.schema import give_clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """The plans of the statements on one table, a text each; there once the collecting is over."""

    table: str
    texts: list[str] = field(default_factory=list[str])

    def use(self, *indexes: str) -> bool:
        """Whether one of these indexes is used, and none of the statements reads the whole table."""
        return any(index in text for text in self.texts for index in indexes) and not self.read_all()

    def read_all(self) -> bool:
        """Whether any of the statements reads the whole table."""
        return any(map(self._reads_all, self.texts))

    def begin_at(self, column: str) -> bool:
        """Whether an index is entered at a value of this column, so that what lies before it is not read."""
        return any(_bounds(text, column) for text in self.texts)

    def lie_between(self, column: str) -> bool:
        """Whether an index is read from one value of this column to another."""
        return any(_bounds(text, column) == 2 for text in self.texts)

    def _reads_all(self, text: str) -> bool:
        lines = [line.strip() for line in text.splitlines()]
        return any(line.startswith(f"SCAN {self.table}") or f"Seq Scan on {self.table}" in line for line in lines)


def _bounds(text: str, column: str) -> int:
    """With how many bounds on a column an index is searched, at most."""
    lines = [line.strip() for line in text.splitlines()]
    return max((line.count(column) for line in lines if line.startswith(("SEARCH", "Index Cond"))), default=0)


@contextmanager
def plans_of(engine: Engine, table: str, *, is_filled: bool = False, writer: Engine | None = None) -> Generator[Plans]:
    """Collect the plans of what is read from a table, changed or removed through an engine, and its writer, meanwhile.

    ``is_filled`` says that the database holds so many rows, and knows it, that Postgres chooses as it would in earnest.
    """
    plans = Plans(table=table)
    looks_up = re.compile(rf"(SELECT|UPDATE|DELETE)\b.*\bFROM {table}\b|UPDATE {table}\b", re.DOTALL)
    asked: list[tuple[str, Any]] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: Any, *_rest: object) -> None:  # noqa: ANN401 - the driver's
        if looks_up.match(statement):
            asked.append((statement, parameters))

    engines = {engine, writer or engine}
    for each in engines:
        event.listen(each, "before_cursor_execute", note)
    try:
        yield plans
    finally:
        for each in engines:
            event.remove(each, "before_cursor_execute", note)
    beside = create_engine(
        engine.url.set(drivername="sqlite" if engine.dialect.name == "sqlite" else "postgresql+psycopg")
    )
    if beside.dialect.name == "sqlite":
        event.listen(beside, "connect", give_clock)
    with beside.connect() as connection:
        plans.texts.extend(_explained(connection, asked, is_filled=is_filled))
    beside.dispose()


def _explained(connection: Connection, asked: Sequence[tuple[str, Any]], *, is_filled: bool) -> list[str]:
    if connection.dialect.name == "sqlite":
        told = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}", given) for query, given in asked]
        return ["\n".join(row.detail for row in rows) for rows in told]
    if not is_filled:  # a table of some rows is read as a whole, rightly
        connection.exec_driver_sql("SET enable_seqscan = off")
    told = [connection.exec_driver_sql(f"EXPLAIN {query}", given) for query, given in asked]
    return ["\n".join(rows.scalars()) for rows in told]
