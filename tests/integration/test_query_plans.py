"""Frequent queries must not become slower with every turn that was ever made: they use an index."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest
from sqlalchemy import Executable, event, insert, text
from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway.batches.store import Batches
from api_gateway.database import create_engine, writer_of
from api_gateway.limits.admission import check_queue
from api_gateway.limits.spending import Spending
from api_gateway.metrics.figures import FleetFigures
from api_gateway.publisher import Publisher
from api_gateway.requests.cursors import Cursor, format_cursor
from api_gateway.requests.places import scan_places
from api_gateway.requests.queries import PageQuery, TurnsQuery
from api_gateway.sessions import Sessions
from api_gateway.turns.heads import read_heads
from api_gateway.turns.store import Turns
from harness_worker.adapters.sql.engine import reading
from harness_worker.adapters.sql.pruning import SqlPruning
from harness_worker.adapters.sql.rows import columns_of
from harness_worker.adapters.sql.scores import SqlScores
from harness_worker.adapters.sql.tenants import WAITING
from harness_worker.core.records import Park
from harness_worker.ports import ExpiredArtifact, HeldTurn, RunningCall
from harness_worker.schema import batches, idempotency_keys, scores, tool_calls, turns
from harness_worker.sessions import (
    INTERRUPT,
    IS_BEHIND,
    NEXT,
    PAST_MESSAGES,
    PAST_TURNS,
    UNFINISHED,
    UNFINISHED_OF_SESSIONS,
)
from harness_worker.wire import FINAL_STATUSES, TurnStatus
from tests.contract.store_world import World, new_call, new_turn, world_of
from tests.integration.gateway_kit import NOWHERE
from tests.query_plans import Plans, plans_of

DEEP = format_cursor(Cursor(created_at=1.5, id="a"))


def asked(
    database_url: str, table: str, ask: Callable[[AsyncEngine], Awaitable[object]], *, is_filled: bool = False
) -> Plans:
    """The query plans of what ``ask`` asks of a table."""

    async def run() -> Plans:
        engine = create_engine(database_url)
        writer = writer_of(engine).sync_engine
        with plans_of(engine.sync_engine, table, is_filled=is_filled, writer=writer) as plans:
            await ask(engine)
        await engine.dispose()
        return plans

    return asyncio.run(run())


def fill(world: World, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add turns that differ only in these columns, and have the database update its statistics."""
    turn = columns_of(new_turn())
    with world.engine.begin() as connection:
        connection.execute(insert(turns), [{**turn, **row} for row in rows])
        connection.execute(text("ANALYZE turns"))


@pytest.mark.parametrize(("table", "index"), [("tool_calls", "turns_due"), ("turns", "turns_due")])
def test_metrics_look_only_at_what_has_not_ended(database_url: str, table: str, index: str) -> None:
    """For figures about unfinished turns, no ended turn and no call of one is read."""
    publisher = Publisher(NOWHERE, 1.0)
    plans = asked(database_url, table, lambda engine: FleetFigures(engine, publisher, None).read())
    publisher.close()
    assert plans.use(index), plans.texts


def test_metrics_look_calls_up_however_many_turns_are_open(postgres_url: str) -> None:
    """Postgres would prefer to read all calls rather than look up those of some thousand turns."""
    names = [str(number) for number in range(3_000)]
    with world_of(postgres_url) as world:
        fill(world, [{"id": name, "session_id": name} for name in names])
        calls = [columns_of(new_call(name, position)) for name in names for position in range(3)]
        with world.engine.begin() as connection:
            connection.execute(insert(tool_calls), calls)
            connection.execute(text("ANALYZE tool_calls"))
    publisher = Publisher(NOWHERE, 1.0)
    plans = asked(
        postgres_url, "tool_calls", lambda engine: FleetFigures(engine, publisher, None).read(), is_filled=True
    )
    publisher.close()
    assert plans.use("tool_calls_pkey"), plans.texts


UNFINISHED_ALONE = ("turns_open", "turns_unfinished")
"""Indexes of the turns that have not ended: to Postgres, these are all one while the table is empty."""

NARROW = [
    *((TurnsQuery(status=status), UNFINISHED_ALONE) for status in sorted(set(TurnStatus) - FINAL_STATUSES)),
    (TurnsQuery(session_id="s"), ("turns_session",)),
    (TurnsQuery(batch_id="b"), ("turns_batch",)),
    (TurnsQuery(parent_id="p"), ("turns_children",)),
]


@pytest.mark.parametrize("status", sorted(FINAL_STATUSES))
def test_turns_that_ended_alike_are_found_without_the_others(database_url: str, status: TurnStatus) -> None:
    """A page of turns with one final status starts at its cursor; within a session, the session is read."""
    for query in (TurnsQuery(status=status, after=DEEP), TurnsQuery(status=status, after=DEEP, agent="a")):
        plans = asked(
            database_url, "turns", lambda engine, query=query: Turns(engine, "default", scan_places()).page(query)
        )
        assert plans.use("turns_by_status"), plans.texts
        assert plans.begin_at("created_at"), plans.texts
    of_a_session = TurnsQuery(status=status, session_id="s")
    plans = asked(database_url, "turns", lambda engine: Turns(engine, "default", scan_places()).page(of_a_session))
    assert plans.use("turns_session"), plans.texts


@pytest.mark.parametrize(("query", "indexes"), NARROW)
def test_turns_that_are_few_are_found_without_walking_the_others(
    database_url: str, query: TurnsQuery, indexes: tuple[str, ...]
) -> None:
    """A page of unfinished turns, or of a session, batch or parent, reads no other turns."""
    later = query.model_copy(update={"after": DEEP})
    for page in (query, later):
        plans = asked(
            database_url, "turns", lambda engine, page=page: Turns(engine, "default", scan_places()).page(page)
        )
        assert plans.use(*indexes), plans.texts


ONE_SESSION = {"of_tenant": "a", "of_session": "s"}
OF_A_SESSION = [
    (UNFINISHED, ONE_SESSION),
    (INTERRUPT, ONE_SESSION),
    (NEXT, {**ONE_SESSION, "after_number": 1}),
    (IS_BEHIND, {**ONE_SESSION, "before_number": 9}),
    (UNFINISHED_OF_SESSIONS, {"of_tenant": "a", "of_sessions": ["s", "t"]}),
    *((waiting, {"of_tenant": "a"}) for waiting in WAITING),
]


@pytest.mark.parametrize("statement", [PAST_TURNS, PAST_MESSAGES])
def test_past_is_read_from_its_last_summary_on(database_url: str, statement: Executable) -> None:
    """Each model call needs it: neither the turns nor the search for the summary read the rest of the session."""

    async def ask(engine: AsyncEngine) -> None:
        async with engine.connect() as connection:
            await connection.execute(statement, {**ONE_SESSION, "before_number": 9})

    with world_of(database_url) as world:
        ended = {"tenant": "a", "finished_at": 1.0}
        places = [(session, number) for session in "abcdefghijs" for number in range(1, 50)]
        fill(world, [{**ended, "id": f"{s}{n}", "session_id": s, "number": n} for s, n in places])
    plans = asked(database_url, "turns", ask)
    assert plans.use("turns_carrying"), plans.texts
    assert plans.lie_between("number"), plans.texts


@pytest.mark.parametrize(("statement", "values"), OF_A_SESSION)
def test_unfinished_turns_of_a_session_are_found_without_the_others(
    database_url: str, statement: Executable, values: Mapping[str, Any]
) -> None:
    """Each post looks for turns before and after its own: ended turns, which may be thousands, are not read."""

    async def ask(engine: AsyncEngine) -> None:
        async with engine.connect() as connection:
            await connection.execute(statement, values)

    plans = asked(database_url, "turns", ask)
    assert plans.use("turns_unfinished"), plans.texts


LISTS: Mapping[str, Callable[[AsyncEngine], Awaitable[object]]] = {
    "turns": lambda engine: Turns(engine, "default", scan_places()).page(TurnsQuery(after=DEEP)),
    "sessions": lambda engine: Sessions(engine, "default").page(PageQuery(after=DEEP)),
    "batches": lambda engine: Batches(engine, "default").page(PageQuery(after=DEEP)),
}


@pytest.mark.parametrize("table", LISTS)
def test_page_does_not_read_the_pages_before_it(database_url: str, table: str) -> None:
    """However deep a cursor is, the list's index is entered at it."""
    plans = asked(database_url, table, LISTS[table])
    assert plans.use(f"{table}_listed"), plans.texts
    assert plans.begin_at("created_at"), plans.texts


def test_page_asks_how_long_its_own_turns_are_alone(sqlite_url: str) -> None:
    """Only the page's own turns are sized, since a SQLite without ``octet_length`` reads a whole text for that."""
    with world_of(sqlite_url) as world:
        fill(world, [{"id": str(number), "session_id": "s", "number": number} for number in range(99)])
    sizes = 0

    def size(value: bytes | str | None) -> int | None:
        nonlocal sizes
        sizes += 1
        return None if value is None else len(value)

    def count_sizes(connection: Any, _record: object) -> None:  # noqa: ANN401 - the driver's
        for name in ("length", "octet_length"):
            connection.create_function(name, 1, size)

    async def ask() -> int:
        engine = create_engine(sqlite_url)
        event.listen(engine.sync_engine, "connect", count_sizes)
        page = await Turns(engine, "default", scan_places()).page(TurnsQuery(session_id="s", limit=3))
        await engine.dispose()
        return len(page.data)

    assert (asyncio.run(ask()), sizes) == (3, 2 * 4)


OF_A_BATCH: list[Callable[[Batches], Awaitable[object]]] = [
    lambda found: found.page(PageQuery()),
    lambda found: found.request_cancel("b1"),
]


@pytest.mark.parametrize("ask", OF_A_BATCH, ids=["state", "cancel"])
def test_turns_of_a_batch_are_found_without_the_tenants_others(
    database_url: str, ask: Callable[[Batches], Awaitable[object]]
) -> None:
    """It does not read all turns of the tenant, which SQLite expects to be fewer, or finds in the order wanted."""

    async def run(engine: AsyncEngine) -> None:
        row: dict[str, Any] = {"tenant": "default", "total": 1, "metadata": {}, "created_at": 1.0}
        async with engine.begin() as connection:
            await connection.execute(insert(batches), [{**row, "id": f"b{number}"} for number in range(9)])
        await ask(Batches(engine, "default"))

    plans = asked(database_url, "turns", run)
    assert plans.use("turns_batch"), plans.texts
    assert not plans.use("turns_session"), plans.texts


def test_artifacts_that_expired_are_found_without_those_that_are_good(database_url: str) -> None:
    """Each coordinator looks for them once a minute."""
    with world_of(database_url) as world:
        engine = world.engine if world.engine.dialect.name == "sqlite" else reading(world.engine)
        with plans_of(engine, "artifacts") as plans:
            world.artifacts.expired(100, after=ExpiredArtifact(1.0, "a", "file:///a"))
    assert plans.use("artifacts_expiry"), plans.texts
    assert plans.lie_between("expires_at"), plans.texts


def test_spending_reads_the_turns_of_a_day(database_url: str) -> None:
    """Only turns of the last day are read, also once the budget is used up, whatever Postgres expects."""
    plans = asked(database_url, "turns", lambda engine: Spending(engine, 0.0).allowance("default"))
    assert len(plans.texts) == 2
    assert plans.use("turns_listed"), plans.texts
    assert plans.lie_between("created_at"), plans.texts


def test_full_queue_is_found_without_what_has_ended(database_url: str) -> None:
    """Each post of a tenant with a limit asks, within its transaction, whether there is room."""

    async def ask(engine: AsyncEngine) -> None:
        async with engine.connect() as connection:
            await check_queue(connection, "default", 9)

    plans = asked(database_url, "turns", ask)
    assert plans.use(*UNFINISHED_ALONE), plans.texts


def test_calls_are_read_for_the_turns_that_are_shown_alone(database_url: str) -> None:
    """Neither a list nor a look at how far turns have come reads the calls of others, even where some wait below."""

    async def ask(engine: AsyncEngine) -> None:
        await Turns(engine, "default", scan_places()).page(TurnsQuery())
        await read_heads(engine, [above])

    with world_of(database_url) as world:
        above, below = world.queued(), world.queued()
        world.change(above, status=TurnStatus.RUNNING, parked_below=(Park(turn_id=below, fence=1),))
        world.change(below, status=TurnStatus.REQUIRES_ACTION)
    plans = asked(database_url, "tool_calls", ask)
    assert len(plans.texts) == 5
    assert not plans.read_all(), plans.texts


def test_due_turns_are_found_by_walking_their_index(postgres_url: str) -> None:
    """Each coordinator looks every second: neither turns that ended, nor those that were due once, are read again."""
    ended = {"status": TurnStatus.COMPLETED, "finished_at": 1.0, "wake_at": None}
    with world_of(postgres_url) as world:
        fill(world, [{**ended, "id": str(number), "session_id": str(number)} for number in range(3_000)])
        turn_id = world.queued()
        with plans_of(reading(world.engine), "turns", is_filled=True) as plans:
            assert [turn.id for turn in world.store.overdue(9, 60.0)] == [turn_id]
    found = [text for text in plans.texts if "Update on turns" not in text]
    assert len(found) == 2
    assert all("Index Scan using turns_due" in text for text in found), found


def beat(world: World) -> None:
    """Beat for two visits and for two calls."""
    world.store.beat_turns([HeldTurn("a", "w", 1), HeldTurn("b", "w", 1)], 60.0)
    runs = [RunningCall(turn_id=turn_id, call_id="0.0", attempt=1, runner="w") for turn_id in ("a", "b")]
    world.store.beat_calls(runs, 60.0)


def prune(world: World) -> None:
    """Remove two sessions, and two keys."""
    for session in ("a", "b"):
        world.change(world.queued(session_id=session), status=TurnStatus.COMPLETED, finished_at=1.0)
    with world.engine.begin() as connection:
        row = {"tenant": "a", "body": "", "turn_id": "", "status_code": 202, "created_at": 1.0}
        connection.execute(insert(idempotency_keys), [{**row, "key": key} for key in ("a", "b")])
    pruning = SqlPruning(world.engine)
    pruning.remove_keys()
    keys = [("default", "a"), ("default", "b")]
    pruning.own_memories(keys)
    assert pruning.remove(keys, world.now()).sessions == len(keys)


def test_one_tenants_sessions_and_keys_are_pruned_a_page_at_a_time(sqlite_url: str) -> None:
    """A page of sessions begins where the one before it ended, and no page of keys reads all keys to sort them."""
    with world_of(sqlite_url) as world:
        pruning = SqlPruning(world.engine, "a")
        with plans_of(world.engine, "sessions") as of_sessions, plans_of(world.engine, "idempotency_keys") as of_keys:
            pruning.page(1.0, after=("a", "s"))
            pruning.remove_keys()
    (page,), (keys,) = of_sessions.texts, of_keys.texts
    assert "(tenant=? AND id>?)" in page
    assert "ORDER BY" not in keys


def judge(world: World) -> None:
    """Take two scores that are due."""
    for turn_id in (world.queued(), world.queued()):
        with world.engine.begin() as connection:
            connection.execute(insert(scores).values(turn_id=turn_id, judge="kind", due_at=1.0))
    assert len(SqlScores(world.engine).due(["kind"], 9, 60.0)) == 2


SEVERAL = [
    *((beat, table) for table in ("turns", "tool_calls")),
    *((prune, table) for table in ("turns", "sessions", "memories", "idempotency_keys")),
    (judge, "scores"),
]


@pytest.mark.parametrize(("ask", "table"), SEVERAL)
def test_several_rows_are_looked_up_as_one_is(sqlite_url: str, ask: Callable[[World], None], table: str) -> None:
    """Two rows with keys of several columns: no table is read as a whole, which would hold SQLite's one lock."""
    with world_of(sqlite_url) as world, plans_of(world.engine, table) as plans:
        ask(world)
    assert plans.texts
    assert not plans.read_all(), plans.texts
