"""``ports.Catalogue`` on SQLite and Postgres, which lets versions of an app keep each other's agents."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Engine, Insert, Select, bindparam, delete, or_, select

from harness_worker.adapters.sql.engine import make_engine
from harness_worker.adapters.sql.pipeline import Write
from harness_worker.adapters.sql.rows import agent_row
from harness_worker.adapters.sql.transactions import read, write_all
from harness_worker.core.budget import BudgetLimits, agent_limits
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.schema import agents, db_now, insert_for

RENEW_S: Final = 60.0
"""How often coordinators renew the agents that they serve, in seconds."""
GONE_S: Final = 180.0
"""After how many seconds without renewal an agent counts as no longer served."""

_FIELDS: Final = ("name", "app", "model", "tools", "budget", "parallel")

_PUBLISHED: Final[Select[Any]] = select(*(agents.c[name] for name in _FIELDS), db_now() - agents.c.published_at).where(
    or_(agents.c.app == bindparam("this_app"), agents.c.name.in_(bindparam("mine", expanding=True)))
)

_CAPS: Final = select(agents.c.budget).where(agents.c.name == bindparam("agent"))

_FORGET_GONE: Final = delete(agents).where(
    agents.c.app == bindparam("this_app"),
    agents.c.name.not_in(bindparam("mine", expanding=True)),
    agents.c.published_at <= db_now() - GONE_S,
)


class _Renewal(NamedTuple):
    """What a renewal has to write.

    Args:
        rows: Agents to publish.
        forgets: Whether there are other agents to forget.
    """

    rows: Sequence[dict[str, Any]]
    forgets: bool


class SqlCatalogue:
    """Implements ``ports.Catalogue`` on SQLite or Postgres.

    Args:
        engine: Made by ``make_engine``.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._put = _put(engine.dialect.name)

    def publish(self, app: str, agents: Iterable[AgentSpec]) -> None:
        """See ``ports.Catalogue.publish``."""
        rows = _rows(app, agents)
        self._write(app, rows, _Renewal(rows, forgets=True))

    def renew(self, app: str, agents: Iterable[AgentSpec]) -> None:
        """See ``ports.Catalogue.renew``; an agent that was not renewed for ``GONE_S`` is kept by nobody."""
        rows = _rows(app, agents)
        due = _renewal(rows, read(self._engine, lambda connection: _found(connection, app, rows)))
        if due.rows or due.forgets:
            self._write(app, rows, due)

    def caps_of(self, agent: str) -> BudgetLimits | None:
        """See ``ports.Catalogue.caps_of``."""
        budget = read(self._engine, lambda connection: connection.execute(_CAPS, {"agent": agent}).scalar_one_or_none())
        return None if budget is None else agent_limits(budget)

    def _write(self, app: str, rows: Sequence[dict[str, Any]], due: _Renewal) -> None:
        forget = {"this_app": app, "mine": [row["name"] for row in rows]}
        # One upsert after the other, in a fixed order, so that workers that publish at once wait for each other.
        puts: list[Write] = [(self._put, [row]) for row in due.rows]
        write_all(self._engine, [*puts, (_FORGET_GONE, [forget] if due.forgets else [])])


def forget_agents(url: str) -> None:
    """Forget every agent, for a database that one stack has to itself; agents that are served are published again.

    Args:
        url: The database.

    Raises:
        TransientError: The database did not answer.
    """
    engine = make_engine(url)
    try:
        write_all(engine, [(delete(agents), [{}])])
    finally:
        engine.dispose()


def _put(dialect: str) -> Insert:
    """The statement that inserts an agent, or replaces the one of the same name."""
    statement = insert_for(dialect, agents).values(published_at=db_now())
    replaced = ("app", "model", "tools", "budget", "parallel", "published_at")
    return statement.on_conflict_do_update(
        index_elements=["name"], set_={name: statement.excluded[name] for name in replaced}
    )


def _rows(app: str, specs: Iterable[AgentSpec]) -> list[dict[str, Any]]:
    """The rows of agents, ordered by name, with values as they are read back."""
    rows = [agent_row(app, spec) for spec in sorted(specs, key=lambda spec: spec.name)]
    return json.loads(json.dumps(rows))


def _found(connection: Connection, app: str, rows: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], float]]:
    """The agents published by the app or under the rows' names, each with its age in seconds."""
    found = connection.execute(_PUBLISHED, {"this_app": app, "mine": [row["name"] for row in rows]})
    return [(dict(zip(_FIELDS, row[:-1], strict=True)), row[-1]) for row in found]


def _renewal(rows: Sequence[dict[str, Any]], found: Sequence[tuple[dict[str, Any], float]]) -> _Renewal:
    """What a coordinator that serves ``rows`` has to write.

    It renews the agents that it serves, and adds missing ones. Another version's agent stays as long as somebody renews
    it, whether its name is one of those in ``rows`` or not. A coordinator that has not renewed its own agents for
    ``GONE_S`` forgets and replaces nothing: the database was away for everybody.
    """
    ages = {row["name"]: age_s for row, age_s in found}
    same = {row["name"] for row, _ in found if row in rows}
    gone_s = inf if any(ages[name] >= GONE_S for name in same) else GONE_S
    names = {row["name"] for row in rows}
    missing = names - ages.keys()
    late = {name for name, age_s in ages.items() if age_s >= (RENEW_S if name in same else gone_s)}
    return _Renewal([row for row in rows if row["name"] in missing | late], forgets=bool(late - names))
