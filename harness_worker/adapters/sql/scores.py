"""``ports.Scores`` on SQLite and Postgres; each method is one short transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, fields
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, bindparam, select, update

from harness_worker.adapters.sql.any_of import any_of
from harness_worker.adapters.sql.commit import memory_rows
from harness_worker.adapters.sql.statements import ADD_MEMORY, NOW
from harness_worker.adapters.sql.transactions import TransactionResult, read, write
from harness_worker.core.memory.memories import Remembered
from harness_worker.core.scoring.scores import ScoreRow
from harness_worker.schema import db_now, scores
from harness_worker.wire import MEMORY

T = TypeVar("T")

_FIELDS: Final = tuple(field.name for field in fields(ScoreRow))
_COLUMNS: Final = tuple(scores.c[name] for name in _FIELDS)
_KEY: Final = (scores.c.turn_id, scores.c.judge)
_ONE: Final = (scores.c.turn_id == bindparam("this_turn"), scores.c.judge == bindparam("this_judge"))
_OF_TURN: Final = (
    select(*_COLUMNS)
    .where(scores.c.turn_id == bindparam("this_turn"), scores.c.judge != MEMORY)
    .order_by(scores.c.judge)
)
_LOCKED: Final = select(*_COLUMNS).where(*_ONE).with_for_update(key_share=True)
_CHANGE: Final = update(scores).where(*_ONE)
_DUE: Final = (
    select(*_KEY)
    .where(
        # In a subquery, the clock is read only once, and Postgres can use the index.
        scores.c.due_at <= select(db_now()).scalar_subquery(),
        scores.c.judge.in_(bindparam("judges", expanding=True)),
    )
    .order_by(scores.c.due_at, *_KEY)
    .limit(bindparam("most"))
)
_LOCKED_DUE: Final = _DUE.with_for_update(key_share=True, skip_locked=True)
_PUSH: Final = update(scores).where(any_of(*_KEY, rows="taken")).values(due_at=db_now() + bindparam("pause_s"))


class SqlScores:
    """Implements ``ports.Scores`` on SQLite or Postgres.

    Args:
        engine: Made by ``make_engine``.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def change(
        self,
        turn_id: str,
        judge: str,
        rule: Callable[[ScoreRow, float], tuple[ScoreRow, T]],
        found: Remembered | None = None,
    ) -> T | None:
        """See ``ports.Scores.change``."""
        key = {"this_turn": turn_id, "this_judge": judge}

        def work(connection: Connection) -> TransactionResult[T | None]:
            locked = connection.execute(_LOCKED, key).one_or_none()
            if locked is None:
                return TransactionResult(value=None)
            before = _row(locked)
            now = connection.execute(NOW).scalar_one()
            after, result = rule(before, now)
            changed = [{**key, **asdict(after)}] if after != before else []
            added = memory_rows(found, now) if found is not None and result else []
            return TransactionResult(value=result, writes=[(_CHANGE, changed), (ADD_MEMORY, added)])

        return write(self._engine, work)

    def due(self, judges: Collection[str], limit: int, pause_s: float) -> list[tuple[str, str]]:
        """See ``ports.Scores.due``."""
        wanted = {"judges": sorted(judges)}
        first = {**wanted, "most": 1}
        if read(self._engine, lambda connection: connection.execute(_DUE, first).first()) is None:
            return []

        def take(connection: Connection) -> TransactionResult[list[tuple[str, str]]]:
            found = [(row.turn_id, row.judge) for row in connection.execute(_LOCKED_DUE, {**wanted, "most": limit})]
            pushed = [{"taken": found, "pause_s": pause_s}] if found else []
            return TransactionResult(value=found, writes=[(_PUSH, pushed)])

        return write(self._engine, take)

    def of_turn(self, turn_id: str) -> tuple[ScoreRow, ...]:
        """The turn's scores, ordered by judge, without the row of :data:`~harness_worker.wire.MEMORY`."""
        rows = read(self._engine, lambda connection: connection.execute(_OF_TURN, {"this_turn": turn_id}).all())
        return tuple(map(_row, rows))


def _row(found: Sequence[Any]) -> ScoreRow:
    return ScoreRow(**dict(zip(_FIELDS, found, strict=True)))
