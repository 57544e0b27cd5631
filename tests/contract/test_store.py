"""The contract of ``TurnStore``: one suite, on SQLite and on Postgres."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import select, update

from harness_worker.adapters.sql.engine import reading
from harness_worker.adapters.sql.store import SqlTurnStore
from harness_worker.core.budget import BudgetLimits, Usage
from harness_worker.core.decisions import Artifact, Decision, Snapshot
from harness_worker.core.outcomes import DenialReason, ToolDenied, ToolOutcome
from harness_worker.core.records import Call, CallStatus, EventDraft, Message
from harness_worker.ports import HeldTurn
from harness_worker.schema import artifacts, tool_calls, turn_events, turns
from harness_worker.testing.waiting import wait_until
from harness_worker.wire import TurnStatus
from tests.contract.store_world import World, deciding, in_threads, new_call, new_turn, one_event, turn_around, waiters

DENIED: ToolOutcome = ToolDenied(call_id="0.0", tool_name="x", reason=DenialReason.NOT_RUN, details="stopped")


# --- a new turn -----------------------------------------------------------------------------------------------------


def test_insert_turn_takes_its_times_from_the_database(world: World):
    """It is created now, to be looked at now, with a deadline when the budget's time is over."""
    before = world.now()
    turn_id = world.queued(deadline_at=5.0, budget=BudgetLimits(timeout_s=30))
    turn = world.turn(turn_id)
    assert before - 0.002 <= turn.created_at <= world.now() + 0.002
    assert turn.wake_at == turn.created_at
    assert turn.deadline_at == turn.created_at + 30


def test_insert_turn_adds_its_message_and_its_first_event(world: World):
    """The user's words are message 0 and ``turn.queued`` is event 1, in the same commit."""
    words = "Grüße, 世界 🎉"
    turn_id = world.queued(session_id="session", input=words, metadata={"k": "v"}, parallel=False, skill_context="s")
    turn = world.turn(turn_id)
    assert world.store.history(turn_id) == (Message(position=0, role="user", content="Grüße, 世界 🎉"),)
    assert (turn.message_count, turn.last_seq, turn.input) == (1, 1, "Grüße, 世界 🎉")
    assert [(event.seq, event.type, event.at) for event in world.sink.sent] == [(1, "turn.queued", turn.created_at)]
    assert world.sink.sent[0].data == {"agent": "support", "session_id": "session"}
    assert (turn.metadata, turn.parallel, turn.skill_context) == ({"k": "v"}, False, "s")


def test_insert_turn_repeated_changes_nothing(world: World):
    """A caller that does not know whether its commit was made may insert the turn again."""
    turn = new_turn()
    world.store.insert_turn(turn)
    world.store.insert_turn(replace(turn, input="other"))
    assert world.turn(turn.id).input == turn.input
    assert world.seqs(turn.id) == [1]
    assert len(world.sink.sent) == 1


def test_insert_turn_by_several_at_once_makes_one(world: World):
    """A message delivered twice at once makes one turn, with one first event and one place in its session."""
    turn = new_turn(session_id="delivered twice")
    in_threads(8, lambda _: world.store.insert_turn(turn))
    assert world.seqs(turn.id) == [1]
    assert len(world.sink.sent) == 1
    assert world.turn(world.queued(session_id="delivered twice")).number == 2


def test_time_tells_moments_apart(world: World):
    """Times have microseconds, so that nothing seems to end before it began."""
    asked = [world.now() for _ in range(20)]
    assert asked == sorted(set(asked))


def test_load_of_no_turn_is_none(world: World):
    """An unknown id has no turn, no history, and nothing to transact on."""
    assert world.store.load("nobody") is None
    assert world.store.history("nobody") == ()
    assert world.store.events_of("nobody") == ()
    assert world.store.transact("nobody", one_event) is None


def test_insert_turn_replaces_what_text_cannot_hold(world: World):
    """U+0000 and lone surrogates become U+FFFD on both databases alike."""
    assert world.turn(world.queued(input="a\x00b\ud800c")).input == "a\ufffdb\ufffdc"


# --- transact -------------------------------------------------------------------------------------------------------


def test_transact_that_raises_changes_nothing(world: World):
    """The rule's exception reaches the caller, and neither rows nor events remain."""
    turn_id = world.queued()
    before, sent = world.store.load(turn_id), list(world.sink.sent)

    def refuse(_: Snapshot) -> Decision[None]:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        world.store.transact(turn_id, refuse)
    assert world.store.load(turn_id) == before
    assert world.sink.sent == sent
    assert world.store.transact(turn_id, deciding(Decision(result=7))) == 7


def test_transact_writes_all_or_nothing(world: World):
    """A row that the database refuses undoes the whole decision, including its events."""
    turn_id = world.queued()
    before = world.store.load(turn_id)
    good, bad = new_call(turn_id, 0), new_call("no-such-turn", 1)
    decision = Decision(result=None, calls=(good, bad), events=(EventDraft(type="wave.started", data={}),))
    with pytest.raises(Exception, match=r"(?i)foreign key"):
        world.store.transact(turn_id, deciding(decision))
    assert world.store.load(turn_id) == before
    assert world.seqs(turn_id) == [1]
    assert len(world.sink.sent) == 1
    world.store.transact(turn_id, one_event)
    assert world.seqs(turn_id) == [1, 2]


def test_transact_appends_messages_and_events_after_the_last(world: World):
    """Positions and numbers continue without a gap, whether or not the rule changes the turn."""
    turn_id = world.queued()
    message = Message(role="assistant", content=[{"type": "text", "text": "né"}])
    drafts = (EventDraft(type="step.completed", data={"n": 1}), EventDraft(type="step.started", data={}))
    world.store.transact(turn_id, deciding(Decision(result=None, messages=(message, message), events=drafts)))
    world.store.transact(
        turn_id, lambda s: Decision(result=None, turn=replace(s.turn, step=1), messages=(message,), events=drafts)
    )
    turn = world.turn(turn_id)
    assert [m.position for m in world.store.history(turn_id)] == [0, 1, 2, 3]
    assert world.store.history(turn_id)[3].content == [{"type": "text", "text": "né"}]
    assert world.seqs(turn_id) == [1, 2, 3, 4, 5]
    assert (turn.last_seq, turn.message_count, turn.step) == (5, 4, 1)


def test_transact_sends_its_events_as_they_stand(world: World):
    """Watchers get exactly what the table contains, numbers and times included, and only after the commit."""
    turn_id = world.queued()
    world.store.transact(turn_id, one_event)
    wanted = select(turn_events.c.seq, turn_events.c.type, turn_events.c.at).where(turn_events.c.turn_id == turn_id)
    with world.engine.connect() as connection:
        rows = [tuple(row) for row in connection.execute(wanted.order_by(turn_events.c.seq))]
    assert [(event.seq, event.type, event.at) for event in world.sink.sent] == rows


def test_transact_gives_uncollected_calls_and_those_of_the_latest_step(world: World):
    """A snapshot contains, in order, the calls that may still change and those that the model asked for last."""
    _, turn_id = world.queued(), world.queued()
    old = [new_call(turn_id, position, collected=position != 1) for position in range(3)]
    latest = [new_call(turn_id, position, step=1, collected=True) for position in (1, 0)]
    world.put(*latest, *old)
    world.change(turn_id, step=2)
    seen = world.store.transact(turn_id, lambda s: Decision(result=[call.call_id for call in s.calls]))
    assert seen == ["0.1", "1.0", "1.1"]
    assert [call.call_id for call in world.calls(turn_id)] == ["0.0", "0.1", "0.2", "1.0", "1.1"]


def test_rows_come_in_order_wherever_they_lie(postgres_world: World):
    """A query says the order itself: rows of one turn may lie in any, and those of other turns between them."""
    world = postgres_world
    _, turn_id = world.queued(), world.queued()
    message = Message(role="assistant", content="so")
    drafts = (EventDraft(type="step.started", data={}),) * 2
    calls = tuple(new_call(turn_id, position) for position in range(3))
    world.store.transact(
        turn_id, deciding(Decision(result=None, messages=(message, message), events=drafts, calls=calls))
    )
    turn_around(world)
    assert [message.position for message in world.store.history(turn_id)] == [0, 1, 2]
    assert [event.seq for event in world.store.events_of(turn_id)] == [1, 2, 3]
    assert [call.position for call in world.calls(turn_id)] == [0, 1, 2]
    for tries in (0, 1):
        store = SqlTurnStore(world.engine, world.sink, unlocked_tries=tries)
        seen = store.transact(turn_id, lambda s: Decision(result=[call.position for call in s.calls]))
        assert seen == [0, 1, 2]


def test_transact_changes_only_the_calls_that_differ(world: World):
    """Several calls are changed at once, each in different fields, and one is left as it is."""
    turn_id = world.queued()
    world.put(*(new_call(turn_id, position) for position in range(4)))

    def decide(snapshot: Snapshot) -> Decision[None]:
        a, b, c, d = snapshot.calls
        ended = {"status": CallStatus.ENDED, "outcome": DENIED, "finished_at": snapshot.now}
        changed = (replace(a, **ended), replace(b, **ended), replace(c, attempt=2), d, new_call(turn_id, 4))
        return Decision(result=None, calls=changed)

    world.store.transact(turn_id, decide)
    calls = world.calls(turn_id)
    assert [call.status for call in calls] == [CallStatus.ENDED] * 2 + [CallStatus.PLANNED] * 3
    assert [call.outcome for call in calls] == [DENIED, DENIED, None, None, None]
    assert [call.attempt for call in calls] == [1, 1, 2, 1, 1]
    open_ones = select(tool_calls.c.position).where(tool_calls.c.outcome.is_(None)).order_by(tool_calls.c.position)
    with reading(world.engine).connect() as connection:
        assert list(connection.scalars(open_ones)) == [2, 3, 4], "none was given a null of JSON"


def test_transact_changes_the_calls_of_its_turn_alone(world: World):
    """Calls of other turns have the same steps and positions, and those of other steps the same positions."""
    changed, other = world.queued(), world.queued()
    for turn_id in (changed, other):
        world.put(new_call(turn_id, 0), new_call(turn_id, 1), new_call(turn_id, 0, step=1))
    before = world.calls(other)
    world.put(new_call(changed, 0, attempt=2), new_call(changed, 1, attempt=3))
    assert [call.attempt for call in world.calls(changed)] == [2, 3, 1]
    assert world.calls(other) == before


def test_transact_writes_nothing_it_did_not_decide(world: World):
    """A heartbeat that prolongs a lease and a rule that does not touch it do not undo each other."""
    turn_id = world.queued()
    now = world.now()
    world.change(turn_id, owner="w1", fence=1, lease_until=now, visit_deadline=now + 900)
    held = world.turn(turn_id).lease_until

    world.store.beat_turns([HeldTurn(turn_id, "w1", 1)], 60.0)
    world.store.transact(turn_id, lambda s: Decision(result=None, turn=replace(s.turn, wakes=s.turn.wakes + 1)))
    turn = world.turn(turn_id)
    assert turn.wakes == 1
    assert turn.lease_until != held


def test_transact_adds_the_artifacts_of_a_decision(world: World):
    """An artifact's row is committed with the outcome that refers to it; a repeat does not add another."""
    turn_id = world.queued()
    artifact = Artifact(
        id="art_1", tenant="t", session_id="s", turn_id=turn_id, call_id="0.0", url="file:///a", size_bytes=2**40,
        summary="…",
    )  # fmt: skip
    for _ in range(2):
        world.store.transact(turn_id, deciding(Decision(result=None, artifacts=(artifact,))))
    with world.engine.connect() as connection:
        (row,) = connection.execute(select(artifacts)).mappings()
    assert row["expires_at"] == row["created_at"] + 3_600.0
    assert (row["id"], row["size_bytes"], row["url"]) == ("art_1", 2**40, "file:///a")


def test_transact_reads_its_time_after_the_lock(postgres_world: World):
    """Times never run backwards from one commit to the next, however long the wait for the lock was."""
    world = postgres_world
    turn_id = world.queued()
    locking = SqlTurnStore(world.engine, world.sink, unlocked_tries=0)
    with ThreadPoolExecutor(1) as pool:
        with world.locked(select(turns.c.id).where(turns.c.id == turn_id).with_for_update(key_share=True)):
            waiting = pool.submit(locking.transact, turn_id, lambda s: Decision(result=s.now))
            wait_until(lambda: waiters(world) == 1, "the transaction to wait for the lock")
            released_at = world.now()
        assert (waiting.result() or 0.0) >= released_at


def test_transact_of_one_turn_is_serial(world: World):
    """Two dozen increments by many threads are all counted: a decision based on outdated state is not written."""
    turn_id = world.queued()

    def increment(snapshot: Snapshot) -> Decision[None]:
        return Decision(result=None, turn=replace(snapshot.turn, wakes=snapshot.turn.wakes + 1))

    in_threads(24, lambda _: world.store.transact(turn_id, increment))
    assert world.turn(turn_id).wakes == 24


def test_transact_numbers_events_without_gaps_under_threads(world: World):
    """Eight threads add ten events each to two turns: they are numbered 1, 2, 3 … in each, as sent and as stored."""
    ids = [world.queued(), world.queued()]
    in_threads(80, lambda n: world.store.transact(ids[n % 2], one_event))
    for turn_id in ids:
        assert world.seqs(turn_id) == list(range(1, 42))
        assert sorted(event.seq for event in world.sink.sent if event.turn_id == turn_id) == list(range(1, 42))
        assert world.turn(turn_id).last_seq == 41
        assert list(world.store.events_of(turn_id)) == sorted(
            (event for event in world.sink.sent if event.turn_id == turn_id), key=lambda event: event.seq
        )


def test_transact_is_decided_again_on_a_turn_that_changed_meanwhile(postgres_world: World):
    """A decision about an outdated turn is not written but made again, whoever changed the turn and however."""
    world = postgres_world
    turn_id = world.queued()
    seen: list[bool] = []

    def decide(snapshot: Snapshot) -> Decision[None]:
        seen.append(snapshot.turn.cancel_requested)
        if len(seen) == 1:
            with world.engine.begin() as stranger:
                stranger.execute(update(turns).where(turns.c.id == turn_id).values(cancel_requested=True))
        return one_event(snapshot)

    world.store.transact(turn_id, decide)
    assert seen == [False, True]
    assert world.seqs(turn_id) == [1, 2]
    assert world.turn(turn_id).cancel_requested


def test_transact_locks_a_turn_that_others_keep_changing(postgres_world: World):
    """A transaction that is overtaken repeatedly finally locks the turn, so that nobody can change it meanwhile."""
    world = postgres_world
    turn_id = world.queued()
    this = turns.c.id == turn_id
    seen: list[int] = []

    def decide(snapshot: Snapshot) -> Decision[None]:
        seen.append(snapshot.turn.wakes)
        with world.engine.begin() as stranger:
            free = stranger.scalars(select(turns.c.id).where(this).with_for_update(skip_locked=True)).all()
            stranger.execute(update(turns).where(turns.c.id.in_(free)).values(wakes=turns.c.wakes + 1))
        return one_event(snapshot)

    world.store.transact(turn_id, decide)
    assert seen == [0, 1, 2, 3]
    assert world.seqs(turn_id) == [1, 2]
    assert world.turn(turn_id).wakes == 3


def test_transact_sees_calls_another_transaction_added_meanwhile(world: World):
    """After a wait for the lock the rule sees everything committed before, including calls."""
    turn_id = world.queued()

    def add(snapshot: Snapshot) -> Decision[int]:
        found = len(snapshot.calls)
        added: Call = new_call(turn_id, found)
        return Decision(result=found, calls=(added,))

    found = in_threads(12, lambda _: world.store.transact(turn_id, add))
    assert sorted(n for n in found if n is not None) == list(range(12))


def test_transact_keeps_usage_and_budget(world: World):
    """Limits and usage come back unchanged, including ``None`` and fractions."""
    budget = BudgetLimits(max_steps=0, max_tokens=None, max_dollars=0.1, timeout_s=0.25)
    turn_id = world.queued(budget=budget)
    used = Usage(input_tokens=2**40, dollars=0.1 + 0.2, steps=3)
    world.change(turn_id, used=used, status=TurnStatus.RUNNING, error={"code": "c", "message": "m"})
    turn = world.turn(turn_id)
    assert (turn.budget, turn.used, turn.error) == (budget, used, {"code": "c", "message": "m"})
    world.change(turn_id, error=None)
    assert world.turn(turn_id).error is None
