"""The catalogue of agents: which rows a coordinator writes, so that versions side by side keep each other's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Select, bindparam, delete, or_, select

from harness_worker.adapters.sql.engine import make_engine
from harness_worker.adapters.sql.rows import agent_row
from harness_worker.adapters.sql.transactions import Outcome, write
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.schema import agents, db_now

RENEW_S: Final = 60.0
"""Coordinators say so often that they serve what is published."""
GONE_S: Final = 180.0
"""What nobody has said for so long is served by nobody."""

_SAID: Final = ("name", "app", "model", "tools", "budget", "parallel")

PUBLISHED: Final[Select[Any]] = select(*(agents.c[name] for name in _SAID), db_now() - agents.c.published_at).where(
    or_(agents.c.app == bindparam("this_app"), agents.c.name.in_(bindparam("mine", expanding=True)))
)

FORGET_GONE: Final = delete(agents).where(
    agents.c.app == bindparam("this_app"),
    agents.c.name.not_in(bindparam("mine", expanding=True)),
    agents.c.published_at <= db_now() - GONE_S,
)


class Renewal(NamedTuple):
    """What there is to write.

    Args:
        rows: Agents to publish.
        forgets: Whether there are others to forget.
    """

    rows: Sequence[dict[str, Any]]
    forgets: bool


def agent_rows(app: str, specs: Iterable[AgentSpec]) -> list[dict[str, Any]]:
    """The rows of agents, by name, as they are read back."""
    rows = [agent_row(app, spec) for spec in sorted(specs, key=lambda spec: spec.name)]
    return json.loads(json.dumps(rows))


def found_rows(connection: Connection, app: str, rows: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], float]]:
    """What is published by the app or under the rows' names, each with the seconds since."""
    found = connection.execute(PUBLISHED, {"this_app": app, "mine": [row["name"] for row in rows]})
    return [(dict(zip(_SAID, row[:-1], strict=True)), row[-1]) for row in found]


def renewal(rows: Sequence[dict[str, Any]], found: Sequence[tuple[dict[str, Any], float]]) -> Renewal:
    """What a coordinator that serves ``rows`` has to write.

    It renews what it serves, and adds what is missing. Another version's agent stays as long as somebody renews it,
    under a name of its own as under one of ``rows``. A coordinator that has not renewed its own for so long forgets and
    takes over nothing: the database was away for all of them.
    """
    ages = {row["name"]: age_s for row, age_s in found}
    same = {row["name"] for row, _ in found if row in rows}
    gone_s = inf if any(ages[name] >= GONE_S for name in same) else GONE_S
    names = {row["name"] for row in rows}
    missing = names - ages.keys()
    late = {name for name, age_s in ages.items() if age_s >= (RENEW_S if name in same else gone_s)}
    return Renewal([row for row in rows if row["name"] in missing | late], forgets=bool(late - names))


def forget_agents(url: str) -> None:
    """Forget every agent, those that run are published again; for a database that one stack has to itself.

    Args:
        url: The database.

    Raises:
        TransientError: The database did not answer.
    """
    engine = make_engine(url)
    try:
        write(engine, lambda _: Outcome(value=None, writes=[(delete(agents), [{}])]))
    finally:
        engine.dispose()
