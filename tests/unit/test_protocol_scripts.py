"""Schedules that broke an earlier version of the protocol, each played step by step against the real engine."""

from __future__ import annotations

from dataclasses import replace

from harness_worker.core.doubt import is_doubt
from harness_worker.core.records import CallStatus
from harness_worker.core.registration.effects import Effect
from harness_worker.errors import TransientError
from harness_worker.ports import HeldTurn, ModelReply
from harness_worker.turn.retries import HAND_IN_TRIES
from harness_worker.turn.running.job import Canvas
from harness_worker.wire import StopReason, TurnStatus
from tests.contract.gate_kit import a_run
from tests.unit.builders import DEADLINE, NOW, TIMING
from tests.unit.engine_kit import TURN_ID, Engine, answers, asks, raising


def test_visits_do_not_make_a_running_tool_late() -> None:
    """Look-ins raise the fence while a read runs; its attempt stays the same, so its result counts."""
    engine = Engine()
    engine.dispatched("look")

    def look_in_twice() -> str:
        for _ in range(2):
            engine.clock.wait(TIMING.look_s)
            engine.advance()
        return "still mine"

    engine.bodies["look"] = look_in_twice
    assert engine.run() is Canvas.CONTINUES
    assert engine.turn.fence == 3
    engine.says(answers("ok"))
    engine.advance()
    assert (engine.contents, engine.calls[0].attempt) == (["still mine"], 1)


def test_chords_body_that_meets_a_live_lease_is_not_lost() -> None:
    """The last tool ends while a look-in is about to release the turn, whose release publishes another look."""
    engine = Engine()
    engine.dispatched("look")

    def body_of_the_chord() -> None:
        engine.run()
        engine.advance()

    engine.clock.now_s += TIMING.look_s
    engine.seen_gate.after["settle"].append(body_of_the_chord)
    engine.advance()
    assert engine.sent.advances == 1
    assert engine.turn.wake_at == engine.clock.now_s
    engine.says(answers("ok"))
    engine.advance()
    assert engine.turn.status is TurnStatus.COMPLETED


def test_hung_visit_is_not_kept_alive_by_its_heartbeat() -> None:
    """Its model call never returns, but its worker sends heartbeats: another visit takes over when its time is up."""
    engine = Engine()
    engine.coordinator = replace(engine.coordinator, timing=replace(TIMING, visit_s=20.0))
    beats: list[float] = []

    def hang() -> ModelReply:
        holder = engine.turn
        while engine.turn.fence == holder.fence and len(beats) < 20:
            engine.clock.now_s += TIMING.lease_ttl_s / 2
            engine.store.beat_turns([HeldTurn(TURN_ID, holder.owner or "", holder.fence)], TIMING.lease_ttl_s)
            beats.append(engine.clock.now_s)
            engine.says(asks("look"))
            engine.advance()
            engine.model.replies.clear()
        return asks("write")

    engine.model.replies.append(hang)
    engine.advance()
    assert engine.turn.fence > 1
    assert beats[-1] <= NOW + 20.0 + TIMING.lease_ttl_s
    assert [call.tool for call in engine.calls] == ["look"]


def test_visit_lasts_as_long_as_its_tries() -> None:
    """If a provider asks for a pause longer than a visit may last, the same visit still asks it again in time."""
    engine = Engine()
    engine.coordinator = replace(engine.coordinator, timing=replace(TIMING, visit_s=20.0))

    def asked_again() -> ModelReply:
        holder = engine.turn
        engine.store.beat_turns([HeldTurn(TURN_ID, holder.owner or "", holder.fence)], TIMING.lease_ttl_s)
        engine.advance()
        return answers("ok")

    engine.says(TransientError("slow down", retry_after_s=25.0), asked_again, answers("too early"))
    engine.advance()
    assert (engine.turn.output_text, engine.turn.fence, len(engine.model.requests)) == ("ok", 1, 2)
    assert engine.clock.now_s == NOW + 25.0


def test_visit_that_lost_its_turn_asks_no_model_again() -> None:
    """The answer would not count, but would have to be paid for."""
    engine = Engine()

    def overtaken() -> ModelReply:
        engine.store.turns[TURN_ID] = replace(engine.turn, owner="visit-2", fence=2)
        raise TransientError("slow down")

    engine.says(overtaken, answers("too late"))
    engine.advance()
    assert len(engine.model.requests) == 1
    assert (engine.turn.status, engine.turn.owner) == (TurnStatus.RUNNING, "visit-2")


def test_store_that_cannot_prolong_a_visit_does_not_end_it() -> None:
    """The visit knows enough to ask the model again."""
    engine = Engine()
    engine.seen_store.before["transact"] += [lambda: None, lambda: None, raising(TransientError("no answer"))]
    engine.says(TransientError("slow down"), TransientError("slow down"), answers("ok"))
    engine.advance()
    assert engine.turn.status is TurnStatus.COMPLETED
    assert engine.seen_store.before["transact"] == []


def test_doubtful_write_is_no_timeout_and_nothing_starts_beside_it() -> None:
    """A process hangs inside a write past every limit: the write is in doubt, and the next one never starts."""
    engine = Engine()
    engine.dispatched("write", "write")

    def stand_still() -> None:
        engine.clock.wait(10.0 + TIMING.hard_s + TIMING.grace_s + 0.1)
        engine.says(answers("ok"))
        engine.advance()
        assert engine.run("0.1", runner="host/2") is Canvas.STAYS

    engine.bodies["write"] = stand_still
    assert engine.run() is Canvas.STAYS
    assert engine.ran == ["write"]
    assert is_doubt(engine.calls[0])
    assert engine.contents[1] == "denied: not_run: write (0.0) ended in doubt"


def test_lost_publish_does_not_wait_for_the_deadline() -> None:
    """After all messages were lost, the first look-in sends the same attempts again."""
    engine = Engine()
    engine.dispatched("look", "look")
    assert engine.turn.wake_at == NOW + TIMING.look_s
    engine.clock.now_s = NOW + TIMING.look_s
    assert [turn_id for turn_id, *_ in engine.store.overdue(10, 5.0)] == [TURN_ID]
    engine.advance()
    assert engine.sent.chords == [["0.0", "0.1"]] * 2
    assert [call.attempt for call in engine.calls] == [1, 1]


def test_lost_write_message_does_not_wait_for_the_deadline() -> None:
    """The rest of the chain is sent again from the first call that waits."""
    engine = Engine()
    engine.dispatched("write", "write", "write")
    engine.run()
    engine.clock.now_s += TIMING.look_s
    engine.advance()
    assert engine.sent.chains == [["0.0", "0.1", "0.2"], ["0.1", "0.2"]]


def test_write_has_one_arbiter() -> None:
    """If the gate is flushed while a write runs, the journal alone decides, so its outcome stands."""
    engine = Engine()
    engine.dispatched("write")
    engine.bodies["write"] = engine.flush
    assert engine.run() is Canvas.CONTINUES
    engine.says(answers("ok"))
    engine.advance()
    assert (engine.contents, engine.calls[0].attempt) == (["null"], 1)


def test_stop_reads_and_closes_the_gate_at_once() -> None:
    """A read whose message arrives after the stop does not start, so reporting it as not run was right."""
    engine = Engine()
    engine.dispatched("look")
    engine.store.cancel(TURN_ID)
    engine.seen_gate.after["settle"].append(engine.run)
    engine.advance()
    assert engine.ran == []
    assert engine.contents == ["denied: not_run: the turn was cancelled"]


def test_stop_of_a_started_write_is_in_doubt() -> None:
    """A cancel during a running write must not report ``not_run``."""
    engine = Engine()
    engine.dispatched("write")

    def cancel() -> None:
        engine.store.cancel(TURN_ID)
        engine.advance()

    engine.bodies["write"] = cancel
    engine.run()
    assert is_doubt(engine.calls[0])


def test_deadlines_count_from_the_start() -> None:
    """A read that queued for half a minute, and the last call of a slow chain, each have their whole time."""
    engine = Engine(look=Effect.READ_ONLY, write=Effect.LOCAL_WRITE)
    engine.dispatched("look", "write", "write", "write", "write")
    engine.clock.now_s += 25.0
    engine.bodies["look"] = lambda: engine.clock.wait(8.0)
    engine.run()
    engine.advance()
    engine.bodies["write"] = lambda: engine.clock.wait(6.0)
    for call_id in ("0.1", "0.2", "0.3", "0.4"):
        assert engine.run(call_id) is Canvas.CONTINUES
    assert engine.contents == ["null"] * 5


def test_stopped_coordinator_does_not_make_a_flushed_gate_anew() -> None:
    """It stands still before it opens the gate; the gate is flushed, the turn ends; nothing is sent, nothing starts."""
    engine = Engine()

    def meanwhile() -> None:
        engine.flush()
        engine.store.cancel(TURN_ID)
        engine.advance()
        engine.flush()

    engine.seen_gate.before["open"].append(meanwhile)
    engine.dispatched("look")
    assert engine.turn.status is TurnStatus.CANCELLED
    assert engine.sent.chains == []
    assert engine.gate.admit(a_run(TURN_ID), 1_000).ticket == ""


def test_coordinator_stopped_after_its_claim_does_not_make_a_flushed_gate_anew() -> None:
    """It stands still between claim and gate, a read being next; the turn ends without it: that read never starts."""
    engine = Engine()
    engine.dispatched("write", "look")
    engine.run()

    def meanwhile() -> None:
        engine.clock.wait(TIMING.lease_ttl_s + 0.1)
        engine.store.cancel(TURN_ID)
        engine.advance()
        engine.flush()

    engine.seen_gate.before["raise_fence"].append(meanwhile)
    engine.advance()
    assert engine.turn.status is TurnStatus.CANCELLED
    assert engine.contents[1] == "denied: not_run: the turn was cancelled"
    assert engine.sent.chains == [["0.0"]]


def test_first_visit_that_stood_still_vouches_for_nobody() -> None:
    """It makes a flushed gate anew before anybody else: a read that ran in the flushed one is not admitted again."""
    engine = Engine()
    engine.says(asks("look"), answers("never committed"))

    def meanwhile() -> None:
        engine.clock.wait(TIMING.lease_ttl_s + 0.1)
        engine.advance()
        engine.bodies["look"] = engine.flush
        engine.run()

    engine.seen_gate.before["raise_fence"].append(meanwhile)
    engine.advance()
    engine.clock.now_s += TIMING.look_s
    engine.advance()
    assert engine.run(runner="host/2") is Canvas.CONTINUES
    assert (engine.ran, engine.calls[0].attempt) == (["look", "look"], 2)


def test_sequence_numbers_survive_a_flush() -> None:
    """They come from the journal, not from Redis."""
    engine = Engine()
    engine.dispatched("look")
    engine.flush()
    engine.says(answers("ok"))
    engine.advance()
    engine.run()
    engine.advance()
    assert engine.turn.status is TurnStatus.COMPLETED
    assert [event.seq for event in engine.store.events] == list(range(1, engine.turn.last_seq + 1))


def test_closed_gate_is_opened_by_the_next_visit() -> None:
    """If a visit closes the gate for the end, but cannot commit it, the next visit's tools still run."""
    engine = Engine()
    engine.says(answers("never committed"), asks("look"))
    engine.seen_store.before["transact"] += [lambda: None, raising(TransientError("no answer"))]
    engine.advance()
    assert engine.turn.status is TurnStatus.RUNNING
    engine.advance()
    assert engine.sent.chains == [["0.0"]]
    assert engine.run() is Canvas.CONTINUES
    assert engine.ran == ["look"]


def test_expired_pending_call_makes_no_hot_loop() -> None:
    """The first look after the deadline ends the turn, and nothing is sent again and again."""
    engine = Engine()
    engine.dispatched("write")
    engine.clock.now_s = DEADLINE + 0.01
    assert engine.run() is Canvas.STAYS
    engine.advance()
    assert (engine.turn.status, engine.turn.stop_reason) == (TurnStatus.INCOMPLETE, StopReason.DEADLINE)
    assert engine.contents == ["denied: not_run: the turn's time ended"]
    assert (engine.turn.fence, len(engine.sent.chains)) == (2, 1)


def test_lost_process_is_found_at_once_when_its_parent_tells() -> None:
    """A read's second attempt does not wait until the first one's lease ends."""
    engine = Engine()
    engine.dispatched("look")
    engine.gate.admit(engine.alive(), 10_000)
    engine.gate.lose(engine.alive())
    engine.advance()
    assert [(call.attempt, call.status) for call in engine.calls] == [(2, CallStatus.PENDING)]
    assert engine.run(runner="host/2") is Canvas.CONTINUES
    engine.says(answers("ok"))
    engine.advance()
    assert engine.contents == ["look done"]


def test_lost_process_of_a_safe_write_is_replaced() -> None:
    """Its worker ends the lease, and the write runs again under the same key, as another attempt."""
    engine = Engine(safe_write=Effect.LOCAL_WRITE)
    engine.dispatched("safe_write")
    engine.seen_store.before["transact"] += [lambda: None, *[raising(TransientError("dead"))] * HAND_IN_TRIES]
    engine.run()
    engine.store.lose_call(engine.alive())
    key = engine.calls[0].idempotency_key
    engine.advance()
    assert engine.run(runner="host/2") is Canvas.CONTINUES
    assert (engine.calls[0].attempt, engine.calls[0].idempotency_key) == (2, key)
    assert engine.ran == ["safe_write", "safe_write"]
