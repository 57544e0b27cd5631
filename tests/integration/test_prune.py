"""Removing old sessions: which are removed, with what, and that kills and other processes do no harm."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Text, func, insert, literal_column, select, update

from api_gateway.app import new_id
from api_gateway.database import create_engine
from api_gateway.limits.admission import TenantLimits
from api_gateway.problems import Problem
from api_gateway.requests.turns import ForkRequest, TurnRequest
from api_gateway.turns.caller import Caller
from api_gateway.turns.creation import TurnCreator
from api_gateway.turns.forking import Fork, origin_of
from harness_worker.adapters.clock import SystemClock
from harness_worker.adapters.sql.pipeline import execute
from harness_worker.adapters.sql.pruning import BATCH_TURNS, Removed, SqlPruning, removal
from harness_worker.core.decisions import Decision
from harness_worker.core.memory.memories import Memory, MemoryKind
from harness_worker.entrypoints.cli.prune_sessions import prune, would_prune
from harness_worker.ports import TurnStore
from harness_worker.schema import agents, batches, idempotency_keys, metadata, scores, sessions, turns, webhooks
from harness_worker.testing.waiting import wait_until
from harness_worker.wire import TurnStatus
from tests.contract.store_world import World, new_call, new_turn, waiters, world_of
from tests.stacks import run_here
from tests.unit.builders import CAPS

DAY_S = 86_400.0
ANN = Memory(kind=MemoryKind.FACT, text="my name is Ann")


def over(world: World, session: str, days: float = 40, tenant: str = "default", **changes: Any) -> str:  # noqa: ANN401 - any field
    """Add a turn of that session that ended so long ago, with a call, messages and events; returns its id."""
    turn_id = world.queued(session_id=session, tenant=tenant, **changes)
    world.put(new_call(turn_id))
    end(world, turn_id, days)
    return turn_id


def end(world: World, turn_id: str, days: float) -> None:
    """End a turn so long ago."""
    at = world.now() - days * DAY_S
    with world.engine.begin() as connection:
        change = update(turns).where(turns.c.id == turn_id)
        connection.execute(change.values(status="completed", created_at=at - 1, finished_at=at, wake_at=None))


def many(world: World, session: str, count: int) -> None:
    """Add a session of so many ended turns, which have only their rows."""
    first = over(world, session)
    with world.engine.begin() as connection:
        row = dict(connection.execute(select(turns).where(turns.c.id == first)).mappings().one())
        rows = [{**row, "id": f"{session}-{number}", "number": number} for number in range(2, count + 1)]
        connection.execute(insert(turns), rows)
        connection.execute(update(sessions).where(sessions.c.id == session).values(turns=count))


def pruned(world: World, tenant: str | None = None) -> Removed:
    """Prune what ended more than 30 days ago."""
    return prune(SqlPruning(world.engine, tenant), SystemClock(), world.now() - 30 * DAY_S, lambda _: None)


def counts(world: World) -> dict[str, int]:
    """The number of rows of each table that has any."""
    with world.engine.connect() as connection:
        found = {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in metadata.sorted_tables
        }
    return {name: count for name, count in found.items() if count}


def session_ids(world: World) -> set[str]:
    """The sessions that exist, whose turns must exist too."""
    with world.engine.connect() as connection:
        found = set(connection.execute(select(sessions.c.id)).scalars())
        assert set(connection.execute(select(turns.c.session_id)).scalars()) == found
    return found


def test_keys_that_are_minded_no_more_go(world: World) -> None:
    """Idempotency keys go a day after their post, of one tenant if asked; younger ones stay."""
    ages = {("a", "old"): 1.01, ("a", "young"): 0.99, ("b", "old"): 40.0}
    with world.engine.begin() as connection:
        for (tenant, key), days in ages.items():
            row = {"tenant": tenant, "key": key, "body": "", "turn_id": "", "status_code": 202}
            connection.execute(insert(idempotency_keys).values({**row, "created_at": world.now() - days * DAY_S}))

    def left() -> set[tuple[str, str]]:
        with world.engine.connect() as connection:
            found = connection.execute(select(idempotency_keys.c.tenant, idempotency_keys.c.key))
            return {(row.tenant, row.key) for row in found}

    pruned(world, tenant="a")
    assert left() == {("a", "young"), ("b", "old")}
    pruned(world)
    assert left() == {("a", "young")}


def test_session_that_is_over_goes_with_all_that_belongs_to_it(world: World) -> None:
    """Its turns, messages, calls, events, scores and webhooks go; nothing else is touched."""
    kept = over(world, "young", days=1)
    before = counts(world)
    for _ in range(2):
        turn_id = over(world, "old")
        with world.engine.begin() as connection:
            connection.execute(insert(scores).values(turn_id=turn_id, judge="strict", due_at=1.0))
            whom = {"url": "https://example.com", "host": "example.com"}
            told = {"told_seq": 1, "seq": 1, "attempt": 1, "failures": 0}
            connection.execute(insert(webhooks).values(turn_id=turn_id, **whom, **told))
    assert pruned(world) == Removed(sessions=1, turns=2)
    assert counts(world) == before
    assert world.turn(kept).id == kept


def test_batch_goes_with_the_last_of_its_turns(world: World) -> None:
    """A batch with turns stays, and so does a young one, whose turns may still be on their way."""
    for batch_id, days in (("gone", 40), ("left", 40), ("young", 1)):
        row: dict[str, Any] = {"id": batch_id, "tenant": "default", "total": 1, "metadata": {}}
        with world.engine.begin() as connection:
            connection.execute(insert(batches).values(**row, created_at=world.now() - days * DAY_S))
    for session, batch_id, days in (("old", "gone", 40), ("old", "left", 40), ("new", "left", 1)):
        turn_id = over(world, session, days)
        with world.engine.begin() as connection:
            connection.execute(update(turns).where(turns.c.id == turn_id).values(batch_id=batch_id))
    assert pruned(world, tenant="another") == Removed()
    assert pruned(world).turns == 2
    with world.engine.connect() as connection:
        assert set(connection.execute(select(batches.c.id)).scalars()) == {"left", "young"}


def test_batch_of_another_tenant_stays(world: World) -> None:
    """If one tenant is asked for, only its own batches go."""
    for tenant in ("a", "b"):
        row: dict[str, Any] = {"id": tenant, "tenant": tenant, "total": 1, "metadata": {}}
        with world.engine.begin() as connection:
            connection.execute(insert(batches).values(**row, created_at=world.now() - 40 * DAY_S))
    pruned(world, tenant="a")
    with world.engine.connect() as connection:
        assert connection.execute(select(batches.c.id)).scalars().all() == ["b"]


def test_sessions_of_children_go_once_what_asked_for_them_is_old(world: World) -> None:
    """Each turn above must be old, since it may wait or be read; other turns of its session do not matter."""
    parent = world.queued(session_id="talk")
    child = over(world, "asked", parent_id=parent, parent_call_id="0.0")
    grandchild = over(world, "asked below", parent_id=child, parent_call_id="0.0")
    assert pruned(world) == Removed()
    end(world, parent, days=29)
    assert pruned(world) == Removed()
    end(world, parent, days=31)
    world.queued(session_id="talk")
    assert pruned(world) == Removed(sessions=2, turns=2)
    assert world.store.load(child) is None
    assert world.store.load(grandchild) is None
    assert session_ids(world) == {"talk"}


@pytest.mark.parametrize("newest", ["ended lately", "running", "waits for a person"])
def test_session_stays_whole_as_long_as_it_goes_on(world: World, newest: str) -> None:
    """Later turns read earlier ones, however old those are."""
    old = over(world, "talk")
    turn_id = world.queued(session_id="talk")
    if newest == "ended lately":
        end(world, turn_id, days=29)
    elif newest == "waits for a person":
        world.change(turn_id, status=TurnStatus.REQUIRES_ACTION)
    before = counts(world)
    assert pruned(world) == Removed()
    assert counts(world) == before
    assert world.turn(old).id == old


def test_what_is_remembered_of_a_user_outlives_the_session(world: World) -> None:
    """Memories of the session alone go with it, because nobody else would read them."""
    for metadata_of_turn in ({"user": "ann"}, {}):
        turn_id = world.queued(session_id="talk", metadata=metadata_of_turn)
        world.store.transact(turn_id, lambda _: Decision(result=None, memories=(ANN,)))
        end(world, turn_id, days=40)
    assert pruned(world) == Removed(sessions=1, turns=2, memories=1)
    assert counts(world) == {"memories": 1}


def test_memories_of_another_tenants_session_of_that_name_stay(world: World) -> None:
    """They are neither counted nor removed with those of a tenant that is named."""
    for tenant in ("acme", "umbrella"):
        turn_id = world.queued(session_id="talk", tenant=tenant)
        world.store.transact(turn_id, lambda _: Decision(result=None, memories=(ANN,)))
        end(world, turn_id, days=40)
    expected = Removed(sessions=1, turns=1, memories=1)
    would = would_prune(SqlPruning(world.engine, "acme"), world.now() - 30 * DAY_S)
    assert would == pruned(world, tenant="acme") == expected
    assert pruned(world) == expected


def test_removal_is_of_the_sessions_that_are_named(world: World) -> None:
    """Others that are over too stay."""
    for session in ("named", "other"):
        over(world, session)
    before = world.now() - DAY_S
    assert SqlPruning(world.engine).remove([("default", "named")], before) == Removed(sessions=1, turns=1)
    assert session_ids(world) == {"other"}


def test_tenant_that_is_named_is_the_only_one(world: World) -> None:
    """Sessions of several tenants may have the same id; only the named tenant's goes."""
    for tenant in ("acme", "umbrella"):
        over(world, "talk", tenant=tenant)
    assert pruned(world, tenant="acme") == Removed(sessions=1, turns=1)
    assert session_ids(world) == {"talk"}
    assert pruned(world, tenant="nobody") == Removed()
    assert pruned(world) == Removed(sessions=1, turns=1)


def test_session_of_another_tenant_keeps_none_of_its_name(world: World) -> None:
    """One that is over goes although another tenant's session of the same name goes on."""
    over(world, "talk", tenant="acme")
    goes_on = world.queued(session_id="talk", tenant="umbrella")
    assert pruned(world) == Removed(sessions=1, turns=1)
    assert world.turn(goes_on).id == goes_on


def test_dry_run_says_what_would_go_and_removes_nothing(world: World) -> None:
    """Its figures are those of the removal that follows."""
    for number in range(3):
        turn_id = world.queued(session_id=f"s{number}")
        world.store.transact(turn_id, lambda _: Decision(result=None, memories=(ANN,)))
        end(world, turn_id, days=40)
    over(world, "young", days=1)
    before = counts(world)
    would = would_prune(SqlPruning(world.engine), world.now() - 30 * DAY_S)
    assert counts(world) == before
    assert pruned(world) == would == Removed(sessions=3, turns=3, memories=3)


def test_long_session_goes_from_its_end_in_bounded_transactions(world: World) -> None:
    """If it is killed between two of them, the session is as it was earlier, can continue, and goes the next time."""
    many(world, "long", 2 * BATCH_TURNS + 50)
    one = SqlPruning(world.engine)
    assert one.remove([("default", "long")], world.now() - DAY_S) == Removed(turns=BATCH_TURNS)
    with world.engine.connect() as connection:
        numbers = set(connection.execute(select(turns.c.number)).scalars())
        assert connection.execute(select(sessions.c.turns)).scalar_one() == BATCH_TURNS + 50
    assert numbers == set(range(1, BATCH_TURNS + 51))
    assert pruned(world) == Removed(sessions=1, turns=BATCH_TURNS + 50)
    assert counts(world) == {}


def test_session_that_is_shortened_is_counted_by_its_own_turns(world: World) -> None:
    """Another tenant's session of the same name, and the tenant's other ones, may have more turns."""
    many(world, "long", BATCH_TURNS + 1)
    for tenant, session in (("another", "long"), ("default", "other")):
        ids = [world.queued(session_id=session, tenant=tenant) for _ in range(3)]
        assert world.turn(ids[-1]).number == 3
    assert SqlPruning(world.engine).remove([("default", "long")], world.now() - DAY_S).turns == BATCH_TURNS
    with world.engine.connect() as connection:
        left = connection.execute(select(sessions.c.tenant, sessions.c.id, sessions.c.turns)).all()
    assert set(map(tuple, left)) == {("default", "long", 1), ("another", "long", 3), ("default", "other", 3)}


def test_session_that_is_shortened_is_the_only_one_written(postgres_world: World) -> None:
    """A post to another session that holds its row at that time is neither waited for nor undone."""
    many(postgres_world, "long", BATCH_TURNS + 1)
    over(postgres_world, "long", tenant="another")
    over(postgres_world, "other")
    versions = select(sessions.c.tenant, sessions.c.id, literal_column("sessions.xmin::text", Text))
    with postgres_world.engine.connect() as connection:
        before = set(map(tuple, connection.execute(versions)))
        connection.rollback()
        assert SqlPruning(postgres_world.engine).remove([("default", "long")], postgres_world.now() - DAY_S).turns
        after = set(map(tuple, connection.execute(versions)))
    assert {(tenant, session) for tenant, session, _ in before ^ after} == {("default", "long")}


def test_long_session_that_is_gone_on_with_amid_its_removal_stays(world: World) -> None:
    """A new turn follows what is left of it."""
    many(world, "long", BATCH_TURNS + 1)
    assert SqlPruning(world.engine).remove([("default", "long")], world.now() - DAY_S).turns == BATCH_TURNS
    turn = new_turn(session_id="long")
    world.store.insert_turn(turn)
    assert pruned(world) == Removed()
    with world.engine.connect() as connection:
        assert list(connection.execute(select(turns.c.number).order_by(turns.c.number)).scalars()) == [1, 2]


def test_session_of_just_a_batch_is_gone(world: World) -> None:
    """If its turns fill exactly one transaction, its row goes too."""
    many(world, "long", BATCH_TURNS)
    assert pruned(world) == Removed(sessions=1, turns=BATCH_TURNS)
    assert counts(world) == {}


def test_session_that_gets_a_turn_before_it_is_removed_stays(world: World) -> None:
    """Whether it is over is checked again in the transaction that removes it."""
    over(world, "talk")
    before = world.now() - DAY_S
    one = SqlPruning(world.engine)
    (found,) = one.page(before)
    assert found.is_over
    world.queued(session_id="talk")
    assert one.remove([found.key], before) == Removed()
    assert len(world.calls(world.queued())) == 0
    assert "talk" in session_ids(world)


def test_turn_that_comes_while_its_session_goes_begins_it_anew(world: World, database_url: str) -> None:
    """The post waits for the removal, and is the first turn of a new session with that id."""
    old = over(world, "talk")
    turn = new_turn(session_id="talk")
    with ThreadPoolExecutor(1) as threads, world_of(database_url) as other:
        with world.engine.connect() as connection, connection.begin():
            outcome = removal(connection, [("default", "talk")], world.now() - DAY_S)
            posted = threads.submit(other.store.insert_turn, turn)
            if world.engine.dialect.name == "postgresql":
                wait_until(lambda: waiters(other) == 1, "the post to wait")
            execute(connection, outcome.writes)
        posted.result(30)
    assert world.store.load(old) is None
    with world.engine.connect() as connection:
        assert connection.execute(select(turns.c.id, turns.c.number)).all() == [(turn.id, 1)]
        assert connection.execute(select(sessions.c.turns)).scalar_one() == 1


def test_session_that_somebody_adds_to_is_passed_over(postgres_world: World) -> None:
    """The removal does not wait for a post that takes its time."""
    over(postgres_world, "talk")
    over(postgres_world, "other")
    held = select(sessions).where(sessions.c.id == "talk").with_for_update()
    with postgres_world.locked(held):
        assert pruned(postgres_world) == Removed(sessions=1, turns=1)
    assert session_ids(postgres_world) == {"talk"}
    assert pruned(postgres_world) == Removed(sessions=1, turns=1)


def test_session_that_is_being_forked_is_passed_over(postgres_world: World, postgres_url: str) -> None:
    """A fork copies all of it or nothing; posts to the session need not wait for it."""
    origin = over(postgres_world, "talk")

    async def fork() -> None:
        engine = create_engine(postgres_url)
        try:
            async with engine.begin() as connection:
                found = await origin_of(connection, "default", Fork(turn_id=origin, request=ForkRequest(from_step=0)))
                assert (found.row.id, pruned(postgres_world)) == (origin, Removed())
                postgres_world.store.insert_turn(new_turn(session_id="talk"))
        finally:
            await engine.dispose()

    asyncio.run(fork())
    assert session_ids(postgres_world) == {"talk"}


def test_two_at_once_remove_each_session_once(world: World, database_url: str) -> None:
    """Two removals at once count no session twice, and leave none."""
    for number in range(12):
        many(world, f"s{number}", 30)
    with world_of(database_url) as other, ThreadPoolExecutor(2) as threads:
        one, two = (each.result(60) for each in [threads.submit(pruned, each) for each in (world, other)])
    assert one + two + pruned(world) == Removed(sessions=12, turns=360)
    assert counts(world) == {}


def test_late_word_about_a_turn_that_is_gone_changes_nothing(world: World) -> None:
    """Messages and judges may come weeks late."""
    turn_id = over(world, "talk")
    assert pruned(world).turns == 1
    store: TurnStore = world.store
    assert store.transact(turn_id, lambda _: Decision(result=1)) is None
    assert counts(world) == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--older-than"),
        (["--older-than", "30"], "--older-than 30: give days or weeks, at least 1d, such as 30d or 8w"),
        (["--older-than", "0d"], "give days or weeks"),
        (["--older-than", "12h"], "give days or weeks"),
        (["--older-than", "-1d"], "give days or weeks"),
    ],
)
def test_wrong_age_is_wrong_usage(arguments: list[str], said: str) -> None:
    """Ages below a day are refused, so that a slip removes nothing."""
    refused = run_here("prune", *arguments)
    assert refused.returncode == 2, refused.stderr
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.one_database("sqlite")
def test_command_says_what_went(world: World, database_url: str) -> None:
    """It prints words or one JSON document; a dry run says that it is one."""
    over(world, "talk", tenant="acme")
    env = {"HARNESS_DATABASE_URL": database_url}
    age = ("prune", "--older-than", "4w")
    dry = run_here(*age, "--dry-run", env=env)
    assert (dry.returncode, dry.stderr) == (0, "")
    assert dry.stdout.startswith("would remove 1 session, 1 turn, 0 memories: over since before 20")
    assert run_here(*age, "--tenant", "umbrella", env=env).stdout.startswith("removed 0 sessions, 0 turns")
    told = json.loads(run_here(*age, "--tenant", "acme", "--json", env=env).stdout)
    assert {**told, "before": "then"} == {"before": "then", "dry_run": False, "sessions": 1, "turns": 1, "memories": 0}
    assert session_ids(world) == set()


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("sqlite:///nowhere/harness.db", 3, "there is no database at"),
        ("postgresql://someone:s3cret@127.0.0.1:1/none", 3, "did not answer"),
        ("nonsense", 2, "is not a URL"),
    ],
)
def test_command_says_what_is_wrong_with_the_database(url: str, code: int, said: str) -> None:
    """The message shows no password."""
    refused = run_here("prune", "--older-than", "30d", env={"HARNESS_DATABASE_URL": url})
    assert refused.returncode == code, refused.stderr
    assert said in refused.stderr
    assert "s3cret" not in refused.stderr
    assert "Traceback" not in refused.stderr


def test_response_that_went_meanwhile_is_not_gone_on_from(world: World, database_url: str) -> None:
    """A client that has just read it is told that it is gone, and its session is not begun anew."""

    async def post() -> None:
        engine = create_engine(database_url)
        creator = TurnCreator(Caller(engine=engine, tenant="default", new_id=new_id, limits=TenantLimits()))
        request = TurnRequest(agent="support", input="And now?", session_id="talk")
        try:
            await creator.create(request, None, follows="gone")
        finally:
            await engine.dispose()

    with world.engine.begin() as connection:
        row: dict[str, Any] = {
            "name": "support",
            "app": "x",
            "model": "x",
            "tools": [],
            "parallel": True,
            "published_at": 0.0,
        }
        connection.execute(insert(agents).values(**row, budget=CAPS))
    with pytest.raises(Problem, match="there is no turn 'gone' any more") as told:
        asyncio.run(post())
    assert (told.value.status, told.value.code) == (404, "not_found")
    assert session_ids(world) == set()
