"""An SQL condition: whether several columns together are among the rows that a parameter lists."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import BinaryExpression, ColumnElement, bindparam, tuple_
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class any_of(FunctionElement[bool]):  # noqa: N801 - used like an SQL function
    """``(first, second) IN`` the rows of a parameter, looked up by an index.

    Args:
        columns: The columns.
        rows: The parameter's name; its value is a list of tuples, which must not be empty.
    """

    inherit_cache = True  # but no type: on SQLite, a Boolean would be compared with 1, and no index used

    def __init__(self, *columns: ColumnElement[Any], rows: str) -> None:
        super().__init__(tuple_(*columns).in_(bindparam(rows, expanding=True)))


@compiles(any_of)
def _any_of(element: any_of, compiler: Any, **options: Any) -> str:  # pyright: ignore[reportUnusedFunction] # noqa: ANN401 - SQLAlchemy's
    return compiler.process(element.clauses, **options)


@compiles(any_of, "sqlite")
def _sqlite_any_of(element: any_of, compiler: Any, **options: Any) -> str:  # pyright: ignore[reportUnusedFunction] # noqa: ANN401 - SQLAlchemy's
    """For ``IN (VALUES ...)`` of two or more rows SQLite reads the whole table, but not for a query over them."""
    listed = cast("BinaryExpression[bool]", next(iter(element.clauses)))
    names = ", ".join(f"column{number}" for number, _ in enumerate(listed.left.clauses, start=1))
    left, right = (compiler.process(side, **options) for side in (listed.left, listed.right))
    return f"{left} IN (SELECT {names} FROM {right})"  # noqa: S608 - contains only parameters
