"""A decision in two statements on Postgres: read the turn without a lock, then write if it is still as it was read.

The turn's row shows whether it is: Postgres stamps every version of a row with the number of the transaction that wrote
it (``xmin``), whoever did, so no version needs to be counted. Every commit of the store writes the turn's row, if only
to renew that number, so the calls that were read in the same statement are unchanged as well. The write is a single
statement of several parts (data-modifying ``WITH``): it is done entirely or not at all, without BEGIN and COMMIT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from sqlalchemy import (
    CTE,
    JSON,
    Table,
    Text,
    bindparam,
    cast,
    column,
    exists,
    func,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import aggregate_order_by

from harness_worker.adapters.sql.child_turns import STOP_CHILDREN, WAKE_PARENT, stop_below
from harness_worker.adapters.sql.commit import CALL_KEY, Changes, event_row
from harness_worker.adapters.sql.engine import to_json
from harness_worker.adapters.sql.pipeline import AnySelect
from harness_worker.adapters.sql.rows import CALL_FIELDS, TURN_FIELDS, call_of, turn_of
from harness_worker.adapters.sql.statements import SNAPSHOT_CALLS
from harness_worker.core.decisions import Snapshot
from harness_worker.schema import (
    artifacts,
    db_now,
    memories,
    messages,
    scores,
    sessions,
    tool_calls,
    turn_events,
    turns,
)
from harness_worker.sessions import WAKE_NEXT

Rows: TypeAlias = Sequence[Mapping[str, Any]]

_VERSION: Final = literal_column("turns.xmin::text", Text)
_ADDED: Final = {
    "new_calls": tool_calls,
    "sessions": sessions,
    "children": turns,
    "messages": messages,
    "events": turn_events,
    "artifacts": artifacts,
    "scores": scores,
    "memories": memories,
}
_JSON_COLUMNS: Final = {
    table.name: [(column.name, column.type.none_as_null) for column in table.c if isinstance(column.type, JSON)]
    for table in _ADDED.values()
}
"""The JSON columns of each table, and whether a Python ``None`` in them becomes SQL's null."""


class _Shape(NamedTuple):
    """A commit without its values: the columns that it writes of each kind of row. Each shape is compiled once."""

    turn: tuple[str, ...]
    calls: tuple[str, ...]
    new_calls: tuple[str, ...]
    sessions: tuple[str, ...]
    children: tuple[str, ...]
    messages: tuple[str, ...]
    events: tuple[str, ...]
    artifacts: tuple[str, ...]
    scores: tuple[str, ...]
    memories: tuple[str, ...]
    frees: bool
    leaves: bool
    is_awaited: bool


def read_statement() -> AnySelect:
    """A query for one row, for :func:`read_of`: the turn, its calls as a list of lists, its version, the time."""
    calls = SNAPSHOT_CALLS.subquery()
    row = func.json_build_array(*(calls.c[name] for name in CALL_FIELDS), type_=JSON)
    in_order = aggregate_order_by(row, *(calls.c[name] for name in CALL_KEY))
    listed = select(func.coalesce(func.json_agg(in_order), literal_column("'[]'::json"))).scalar_subquery()
    turn = (turns.c[name] for name in TURN_FIELDS)
    return select(*turn, listed, _VERSION, db_now()).where(turns.c.id == bindparam("turn_id"))


def read_of(row: Sequence[Any]) -> tuple[Snapshot, str]:
    """The turn in a row of :func:`read_statement`, and the version of its row."""
    *turn, calls, version, now = row
    return Snapshot(now=now, turn=turn_of(turn), calls=tuple(map(call_of, calls))), version


def commit_of(changes: Changes, version: str) -> tuple[str, dict[str, Any]]:
    """The statement that writes ``changes`` if the turn still has that version, and its parameters.

    It returns the turn's new version, or no row if the version has changed.
    """
    lists: dict[str, Rows] = {
        "calls": changes.calls,
        "new_calls": changes.new_calls,
        "sessions": changes.sessions,
        "children": changes.children,
        "messages": changes.messages,
        "events": [event_row(event) for event in changes.events],
        "artifacts": changes.artifacts,
        "scores": changes.scores,
        "memories": changes.memories,
    }
    columns = {name: tuple(rows[0]) if rows else () for name, rows in lists.items()}
    shape = _Shape(
        turn=tuple(changes.turn),
        **columns,
        frees=bool(changes.freed),
        leaves=bool(changes.left),
        is_awaited=bool(changes.awaited),
    )
    turn = {f"turn_{name}": value for name, value in _bound(turns, changes.turn).items()}
    listed = {name: _listed(_ADDED.get(name, tool_calls), rows) for name, rows in lists.items() if rows}
    statement, constants = _compiled(shape)
    named = {"turn_id": changes.turn_id, "row_version": version}
    return statement, {**constants, **named, **turn, **listed, **changes.freed, **changes.left, **changes.awaited}


@lru_cache(maxsize=256)
def _compiled(shape: _Shape) -> tuple[str, Mapping[str, Any]]:
    turn = _change_turn(shape.turn)
    parts = [_change_calls(shape.calls, turn)] if shape.calls else []
    for name, table in _ADDED.items():
        columns: tuple[str, ...] = getattr(shape, name)
        if columns:
            parts.append(_add(name, table, columns, turn))
    also = {"wake_next": (shape.frees, WAKE_NEXT), "wake_parent": (shape.is_awaited, WAKE_PARENT)}
    parts += [change.where(exists(select(turn.c.id))).cte(name) for name, (wanted, change) in also.items() if wanted]
    parts += _stop_family(turn) if shape.leaves else []
    statement = select(turn.c.version).add_cte(*parts)
    compiled = statement.compile(dialect=postgresql.psycopg.dialect())
    return str(compiled), {name: bind.value for name, bind in compiled.binds.items() if not bind.required}


def _change_turn(columns: Sequence[str]) -> CTE:
    values: dict[str, Any] = {name: bindparam(f"turn_{name}", type_=turns.c[name].type) for name in columns}
    is_same = (turns.c.id == bindparam("turn_id"), bindparam("row_version", type_=Text) == _VERSION)
    return update(turns).where(*is_same).values(values).returning(turns.c.id, _VERSION.label("version")).cte("turn")


def _stop_family(turn: CTE) -> list[CTE]:
    """The parts that stop children and grandchildren; the second reads the first, which alone fixes their order."""
    stopped = STOP_CHILDREN.where(exists(select(turn.c.id))).returning(turns.c.id).cte("stop_children")
    return [stopped, stop_below(select(stopped.c.id)).cte("stop_grandchildren")]


def _change_calls(columns: Sequence[str], turn: CTE) -> CTE:
    rows = _records("calls", tool_calls, columns)
    key = (tool_calls.c[name] == rows[name] for name in CALL_KEY)
    values = {name: rows[name] for name in columns if name not in CALL_KEY}
    changed = update(tool_calls).where(tool_calls.c.turn_id == turn.c.id, *key).values(values)
    return changed.cte("changed_calls")


def _add(name: str, table: Table, columns: Sequence[str], turn: CTE) -> CTE:
    rows = _records(name, table, columns)
    added = postgresql.insert(table).from_select(columns, select(*rows.values()).where(exists(select(turn.c.id))))
    return (added.on_conflict_do_nothing() if table is artifacts else added).cte(f"add_{name}")


def _records(name: str, table: Table, columns: Sequence[str]) -> dict[str, Any]:
    """The columns of the rows in the parameter ``name``, a JSON list of objects in which JSON values are text.

    Postgres would examine JSON values themselves, and refuse what its texts cannot hold (U+0000, lone surrogates).
    """
    types = {key: table.c[key].type for key in columns}
    typed = [column(key, Text() if isinstance(types[key], JSON) else types[key]) for key in columns]
    alias = func.json_to_recordset(bindparam(name, type_=JSON)).table_valued(*typed)
    rows = alias.render_derived(name=f"new_{name}", with_types=True)
    return {
        name: cast(rows.c[name], JSON) if isinstance(type_, JSON) else rows.c[name] for name, type_ in types.items()
    }


def _listed(table: Table, rows: Rows) -> str:
    return to_json([_bound(table, row) for row in rows])


def _bound(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as parameters, with JSON values as text."""
    bound = dict(row)
    for name, keeps_null in _JSON_COLUMNS[table.name]:
        if name in bound and not (keeps_null and bound[name] is None):
            bound[name] = to_json(bound[name])
    return bound
