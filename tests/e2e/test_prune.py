"""``harness prune`` removes old sessions while workers drive turns, even if it is killed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, Table, create_engine, func, insert, select

from harness_worker.adapters.sql.engine import make_engine, reading
from harness_worker.adapters.sql.pruning import BATCH_TURNS
from harness_worker.schema import db_now, messages, sessions, tool_calls, turn_events, turns
from harness_worker.testing.waiting import wait_until
from tests.e2e.outsider import Outsider, call
from tests.stacks import HARNESS, ROOT, run_harness

pytestmark = pytest.mark.one_database("postgres")

OLD = 9 * BATCH_TURNS
OLD_S = 40 * 86_400.0
PRUNE = ("prune", "--older-than", "30d")


@pytest.fixture
def engine(outsider: Outsider) -> Generator[Engine]:
    """The stack's database."""
    engine = make_engine(outsider.stack.database_url)
    yield engine
    engine.dispose()


def make_old(engine: Engine, turn_id: str) -> None:
    """Copy a turn into sessions of three turns each that ended long ago."""
    with engine.connect() as connection:
        now = connection.execute(select(db_now())).scalar_one()
        turn = dict(connection.execute(select(turns).where(turns.c.id == turn_id)).mappings().one())
        parts = {
            table: connection.execute(select(table).where(table.c.turn_id == turn_id)).mappings().all()
            for table in (messages, tool_calls, turn_events)
        }
    times = {"created_at": now - OLD_S, "finished_at": now - OLD_S}
    rows = [{**turn, **times, "id": f"old-{n}", "session_id": f"old-{n // 3}", "number": n % 3 + 1} for n in range(OLD)]
    ids = sorted({row["session_id"] for row in rows})
    named = [{"tenant": turn["tenant"], "id": each, "turns": 3, "created_at": now - OLD_S} for each in ids]
    copies: dict[Table, list[dict[str, Any]]] = {sessions: named, turns: rows}
    for table, theirs in parts.items():
        copies[table] = [{**each, "turn_id": row["id"]} for row in rows for each in theirs]
    for table, added in copies.items():  # each by itself: a transaction that stands still while rows are made is ended
        with engine.begin() as connection:
            connection.execute(insert(table), added)


def left(engine: Engine) -> int:
    """How many of the old turns are left."""
    with reading(engine).connect() as connection:
        return connection.execute(select(func.count()).where(turns.c.id.startswith("old-"))).scalar_one()


@contextmanager
def skipped(url: str, session_id: str) -> Generator[None]:
    """Meanwhile somebody holds a session's row, so that even the quickest prune leaves something."""
    patient = create_engine(url)
    with patient.begin() as connection:
        connection.execute(select(sessions).where(sessions.c.id == session_id).with_for_update())
        yield
    patient.dispose()


def lengths(engine: Engine) -> set[int]:
    """The numbers of turns of those old sessions that have any left."""
    old = select(func.count()).where(turns.c.id.startswith("old-")).group_by(turns.c.session_id)
    with reading(engine).connect() as connection:
        return set(connection.execute(old).scalars())


def test_old_sessions_go_beside_turns_that_run(outsider: Outsider, engine: Engine) -> None:
    """A killed prune leaves only whole sessions; two more at once remove the rest; turns that run are not harmed."""
    steps = [[call("look", n=1)], [call("look", n=2), call("put", n=3)], "done"]
    make_old(engine, outsider.run(*steps, session_id=f"{id(engine)}")["id"])
    env = {"HARNESS_DATABASE_URL": outsider.stack.database_url}
    with skipped(outsider.stack.database_url, "old-2"):
        with subprocess.Popen([*HARNESS, *PRUNE], cwd=ROOT, env={**os.environ, **env}) as killed:
            wait_until(lambda: left(engine) < OLD, "the first to go", 60)
            killed.kill()
        assert lengths(engine) == {3}
    with ThreadPoolExecutor(4) as threads:
        prunes = [threads.submit(run_harness, *PRUNE, "--json", env=env) for _ in range(2)]
        posted = [outsider.post(*steps, session_id=f"old-{n}") for n in (0, 1, OLD // 3 - 1)]
        posted += [outsider.post(*steps) for _ in range(9)]
        ended = [outsider.end(turn_id) for turn_id in posted]
        told = [prune.result() for prune in prunes]
    assert {turn["status"] for turn in ended} == {"completed"}
    assert [prune.returncode for prune in told] == [0, 0], told
    assert sum(json.loads(prune.stdout)["turns"] for prune in told) > 0
    assert lengths(engine) <= {3}, "sessions that were gone on with in time stay whole"
    assert left(engine) <= 9
