"""Sessions in the store, the order of their turns, and their artifacts: one suite, on SQLite and on Postgres."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from sqlalchemy import Text, insert, literal_column, select, update

from harness_worker.adapters.sql.store import SqlTurnStore
from harness_worker.core.decisions import Artifact, Decision, Snapshot
from harness_worker.core.ending import end_turn
from harness_worker.core.records import Carried, Message, TurnPreparation
from harness_worker.core.sources.citations import Source
from harness_worker.schema import past_messages, past_turns, turns
from harness_worker.testing.waiting import wait_until
from harness_worker.wire import StopReason, TurnStatus
from tests.contract.store_world import World, in_threads, new_turn, turn_around, waiters


def ends(snapshot: Snapshot, reason: StopReason = StopReason.END_TURN) -> Decision[None]:
    """A rule that ends the turn."""
    ended = end_turn(snapshot.turn, TurnStatus.COMPLETED, reason, now=snapshot.now)
    return Decision(result=None, turn=ended)


def is_behind(world: World, turn_id: str) -> bool | None:
    """Whether the store says that an earlier turn has not ended."""
    return world.store.transact(turn_id, lambda snapshot: Decision(result=snapshot.is_behind))


def test_insert_turn_gives_places_in_order(world: World) -> None:
    """Turns are numbered as they come; one behind an unfinished turn waits, and that turn knows of its follower."""
    first, second, third = (world.turn(world.queued(session_id="s")) for _ in range(3))
    assert [(turn.number, turn.waits) for turn in (first, second, third)] == [(1, False), (2, True), (3, True)]
    assert [world.turn(turn.id).followed for turn in (first, second, third)] == [True, True, False]
    elsewhere = [world.turn(world.queued(session_id=s, tenant=t)) for s, t in (("t", "default"), ("s", "other"))]
    assert [(turn.number, turn.waits) for turn in elsewhere] == [(1, False), (1, False)]


def test_insert_turn_at_once_gives_each_a_place(world: World) -> None:
    """However many come at once, no place is given twice, and all but the first wait."""
    ids = in_threads(8, lambda _: world.queued(session_id="s"))
    placed = sorted((world.turn(turn_id) for turn_id in ids), key=lambda turn: turn.number)
    assert [turn.number for turn in placed] == list(range(1, 9))
    assert [turn.waits for turn in placed] == [False, *[True] * 7]
    assert [turn.created_at for turn in placed] == sorted(turn.created_at for turn in placed)


def test_snapshot_tells_a_waiting_turn_whether_it_is_behind(world: World) -> None:
    """A turn is behind any earlier unfinished turn of its session, but never behind another tenant's."""
    world.queued(session_id="s", tenant="other")
    first, second, third = (world.queued(session_id="s") for _ in range(3))
    assert [is_behind(world, turn_id) for turn_id in (first, second, third)] == [False, True, True]
    world.store.transact(second, ends)
    assert is_behind(world, third) is True
    world.store.transact(first, ends)
    assert is_behind(world, third) is False


def test_end_wakes_the_next_unfinished_turn(world: World) -> None:
    """The same commit makes the session's next unfinished turn due for a look, and no other; tenants are apart."""
    for _ in range(3):
        world.queued(session_id="s", tenant="other")
    ids = [world.queued(session_id="s") for _ in range(4)]
    world.store.transact(ids[1], ends)
    before = {turn_id: world.turn(turn_id) for turn_id in ids}
    for turn_id in ids[2:]:
        world.change(turn_id, wake_at=before[turn_id].created_at + 500)
    world.store.transact(ids[0], ends)
    woken, other = world.turn(ids[2]), world.turn(ids[3])
    assert (woken.wakes, other.wakes) == (before[ids[2]].wakes + 1, before[ids[3]].wakes)
    assert woken.wake_at is not None
    assert woken.wake_at <= world.now() < (other.wake_at or 0.0)
    assert world.turn(ids[1]).wake_at is None
    assert world.store.next_of_session(world.turn(ids[0])) == (ids[2], "interactive")
    assert world.store.next_of_session(world.turn(ids[3])) is None


def test_past_is_what_ended_earlier_in_the_session(world: World) -> None:
    """Earlier turns come in order, with their messages and context; none is of another session or tenant."""
    known = {"notes": {"1": "hm"}, "summary": "so far", "compacted_at": 2, "prompt_tokens": 9, "compact_at": 10}
    preparation = TurnPreparation(context=("today", "é"), prefix_hash="abc", **known)  # type: ignore[arg-type]
    words = Message(role="assistant", content=[{"type": "text", "text": "yes"}])
    world.store.transact(world.queued(session_id="s", tenant="other"), ends)
    first = world.queued(session_id="s", input="one")
    world.store.transact(first, lambda s: replace(ends(s), messages=(words,)))
    second = world.queued(session_id="s", input="two")
    world.change(second, preparation=preparation, output_text="done")
    world.store.transact(second, lambda s: ends(s, StopReason.REFUSAL))
    running, last = (world.turn(world.queued(session_id="s")) for _ in range(2))
    assert [(past.preparation, past.output_text, past.stop_reason) for past in world.store.past(running)] == [
        (None, "", StopReason.END_TURN),
        (preparation, "done", StopReason.REFUSAL),
    ]
    said = [[(m.position, m.role, m.content) for m in past.messages] for past in world.store.past(last)]
    assert said == [[(0, "user", "one"), (1, "assistant", words.content)], [(0, "user", "two")]]
    assert world.store.past(world.turn(first)) == ()


def test_session_is_in_order_wherever_its_turns_lie(postgres_world: World) -> None:
    """Queries say the order themselves: which turn is next, which one the newest follows, and what was said."""
    world = postgres_world
    words = Message(role="assistant", content="so")
    first, second, third, fourth = (world.queued(session_id="s", input=str(number)) for number in range(1, 5))
    for turn_id in (first, second):
        world.store.transact(turn_id, lambda s: replace(ends(s), messages=(words,)))
    turn_around(world)
    past = world.store.past(world.turn(third))
    said = [[(message.position, message.content) for message in each.messages] for each in past]
    assert said == [[(0, "1"), (1, "so")], [(0, "2"), (1, "so")]]
    assert world.store.next_of_session(world.turn(first)) == (third, "interactive")
    world.queued(session_id="s")
    assert [world.turn(turn_id).followed for turn_id in (third, fourth)] == [True, True]


def test_past_begins_with_the_last_summary(world: World) -> None:
    """What precedes the summary is not even read; a summary made by an older worker does not count."""
    source = Source(id="a.md#1", title="A", source="a.md", quote="é")
    carried = Carried(tools=("look", "read_artifact"), has_artifact=True, sources=(source,))
    for number, carries in enumerate([None, Carried(), None, carried, None, None], 1):
        turn_id = world.queued(session_id="s", input=str(number))
        world.change(turn_id, carried=carries)
        world.store.transact(turn_id, ends)
    last = world.turn(world.queued(session_id="s"))
    past = world.store.past(last)
    assert [(each.messages[0].content, each.carried) for each in past] == [("4", carried), ("5", None), ("6", None)]
    assert [each.messages[0].content for each in world.store.past(replace(last, number=4))] == ["2", "3"]


def test_past_of_a_fork_begins_with_what_it_was_forked_with(world: World) -> None:
    """So does that of later turns of its session, but of no other session, and not of one of its name elsewhere."""
    fork = world.queued(session_id="s")
    given = {"turn_id": fork, "number": -1}
    with world.engine.begin() as connection:
        connection.execute(insert(past_turns).values(**given, status="completed", output_text="yes"))
        connection.execute(insert(past_messages).values(**given, position=0, role="user", content="before"))
    later = world.queued(session_id="s")
    others = [world.queued(session_id="s", tenant="other"), world.queued(session_id="t")]
    past = [world.store.past(world.turn(turn_id)) for turn_id in (fork, later, *others)]
    said = [[message.content for each in found for message in each.messages] for found in past]
    assert said == [["before"], ["before"], [], []]
    assert [[each.output_text for each in found] for found in past] == [["yes"], ["yes"], [], []]


def test_end_that_nobody_waits_for_wakes_nobody(world: World) -> None:
    """A turn created after the end is not affected by what is written to the ended one later."""
    first = world.queued(session_id="s")
    world.store.transact(first, ends)
    second = world.turn(world.queued(session_id="s"))
    world.store.transact(first, lambda s: Decision(result=None, turn=replace(s.turn, output_text="late")))
    assert (second.number, second.waits, world.turn(second.id)) == (2, False, second)


def test_end_passes_over_a_turn_that_ends_at_the_same_time(postgres_world: World) -> None:
    """The next turn is read under its lock: if it was just ending, the one after it is woken."""
    world = postgres_world
    first, second, third = (world.queued(session_id="s") for _ in range(3))
    with ThreadPoolExecutor(1) as pool:
        beside: list[Future[None]] = []

        def end_second(snapshot: Snapshot) -> Decision[None]:
            if not beside:
                beside.append(pool.submit(world.store.transact, first, ends))
                wait_until(lambda: waiters(world) == 1, "the end of the first to meet the lock of the second")
            return ends(snapshot)

        locking = SqlTurnStore(world.engine, world.sink, unlocked_tries=0)
        locking.transact(second, end_second)
        beside[0].result(30)
    assert world.turn(second).wake_at is None
    assert world.turn(third).wakes == 2


def test_queueing_writes_one_turn_of_those_ahead(postgres_world: World) -> None:
    """Only the last one is written: those before it already have a follower, and nothing else about them changes."""
    world = postgres_world
    versions = select(turns.c.id, literal_column("turns.xmin::text", Text))
    ids = [world.queued(session_id="s") for _ in range(3)]
    with world.engine.connect() as connection:
        before = {row[0]: row[1] for row in connection.execute(versions)}
        world.queued(session_id="s")
        after = {row[0]: row[1] for row in connection.execute(versions)}
    assert [before[turn_id] == after[turn_id] for turn_id in ids] == [True, True, False]


def test_end_wakes_the_turn_that_is_queued_at_the_same_time(postgres_world: World) -> None:
    """This holds even if another turn had followed it and has ended."""
    world = postgres_world
    first, second = (world.queued(session_id="s") for _ in range(2))
    world.store.transact(second, ends)
    third = new_turn(session_id="s")
    with ThreadPoolExecutor(2) as pool, world.engine.connect() as connection:
        row = connection.execute(select(turns).where(turns.c.id == first)).mappings().one()
        connection.execute(insert(turns).values({**row, "id": third.id, "session_id": "elsewhere"}))
        queueing = pool.submit(world.store.insert_turn, third)
        wait_until(lambda: waiters(world) == 1, "the new turn to wait before its commit")
        ending = pool.submit(world.store.transact, first, ends)
        wait_until(lambda: waiters(world) == 2, "the end to meet the lock of the new turn")
        connection.rollback()
        queueing.result(30)
        ending.result(30)
    assert (world.turn(third.id).waits, world.turn(third.id).wakes) == (True, 1)


def kept(world: World, artifact_id: str, ttl_s: float, **changes: str) -> str:
    """Have a store that keeps artifacts for so long store one for session "s"."""
    names = {"tenant": "default", "session_id": "s", "turn_id": "t", "call_id": "0.0", "summary": "…", **changes}
    made = Artifact(id=artifact_id, url=f"file:///{artifact_id}", size_bytes=1, **names)
    store = SqlTurnStore(world.engine, world.sink, artifact_ttl_s=ttl_s)
    store.transact(world.queued(), lambda _: Decision(result=None, artifacts=(made,)))
    return artifact_id


def test_turn_that_is_queued_at_the_end_of_the_one_before_need_not_wait(postgres_world: World) -> None:
    """It is added once that end is committed, which does not wake it, as nobody had to be woken by then."""
    world = postgres_world
    first = new_turn()
    world.store.insert_turn(first)
    over = {"status": TurnStatus.COMPLETED.value, "finished_at": world.now()}
    with ThreadPoolExecutor(1) as pool:
        with world.engine.begin() as connection:
            connection.execute(update(turns).where(turns.c.id == first.id).values(over))
            queueing = pool.submit(world.queued, session_id=first.session_id)
            wait_until(lambda: waiters(world) == 1, "the new turn to meet the lock of the end")
        assert not world.turn(queueing.result()).waits
    assert not world.turn(first.id).followed


def test_artifacts_are_found_by_their_session_until_they_expire(world: World) -> None:
    """Neither another session nor another tenant finds one, and nobody does after its store's TTL."""
    made = [kept(world, "art_1", 60), kept(world, "art_2", 60, session_id="t"), kept(world, "art_3", -1)]
    found = [world.artifacts.url_of(artifact_id, tenant="default", session_id="s") for artifact_id in made]
    assert found == ["file:///art_1", None, None]
    assert world.artifacts.url_of("art_1", tenant="other", session_id="s") is None


def test_artifacts_are_found_from_forks_of_their_session(world: World) -> None:
    """Whether of the session or of a fork of it; a fork of another tenant in a session of that name leads nowhere."""
    kept(world, "art_1", 60)
    origin = world.queued(session_id="s")
    fork = world.queued(session_id="fork", forked_from=origin)
    world.queued(session_id="its fork", forked_from=fork)
    world.queued(session_id="another's", tenant="other", forked_from=origin)
    sessions = ("fork", "its fork", "another's")
    found = [world.artifacts.url_of("art_1", tenant="default", session_id=each) for each in sessions]
    assert found == ["file:///art_1", "file:///art_1", None]


def test_expired_artifacts_are_told_in_order_until_they_are_forgotten(world: World) -> None:
    """At most as many as asked for are returned, and none that is still valid."""
    for artifact_id, ttl_s in (("art_1", 60), ("art_2", -5), ("art_3", -9)):
        kept(world, artifact_id, ttl_s)
    (first,) = world.artifacts.expired(1)
    (second,) = world.artifacts.expired(1, after=first)
    assert [(each.id, each.url) for each in (first, second)] == [("art_3", "file:///art_3"), ("art_2", "file:///art_2")]
    assert world.artifacts.expired(9) == [first, second]
    assert world.artifacts.expired(9, after=second) == []
    world.artifacts.forget(["art_3", "art_2"])
    assert world.artifacts.expired(9) == []
    assert world.artifacts.url_of("art_1", tenant="default", session_id="s") == "file:///art_1"
