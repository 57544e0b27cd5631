"""Turns of one session in the engine: one at a time, in order."""

from __future__ import annotations

from harness_worker.core.progress import abandon
from harness_worker.errors import TransientError
from harness_worker.wire import TurnStatus
from tests.unit.builders import a_turn
from tests.unit.engine_kit import TURN_ID, Engine, answers, asks, raising

NEXT = "next"


def engine_with_two() -> Engine:
    """The engine with a second turn of the same session."""
    engine = Engine()
    engine.store.insert_turn(a_turn(id=NEXT, priority="batch"))
    return engine


def test_second_turn_starts_when_the_first_has_ended() -> None:
    """Looked at before, it stays queued; the end of the first wakes it as a turn that begins."""
    engine = engine_with_two()
    engine.coordinator.advance(NEXT)
    assert engine.store.turns[NEXT].status is TurnStatus.QUEUED
    engine.says(answers("first"), answers("second"))
    engine.advance()
    assert (engine.sent.advanced, engine.sent.begun) == ([(NEXT, "batch")], [NEXT])
    assert engine.store.turns[NEXT].wake_at == engine.clock.now_s
    engine.coordinator.advance(NEXT)
    assert engine.store.turns[NEXT].output_text == "second"


def test_second_turn_is_asked_with_the_first_ones_messages() -> None:
    """Its request begins with what was sent and said in the first; its own history does not."""
    engine = engine_with_two()
    engine.says(asks("look"), answers("first"), answers("second"))
    engine.advance()
    engine.run()
    engine.advance()
    engine.coordinator.advance(NEXT)
    first, last, second = (request.messages for request in engine.model.requests)
    assert [message.role for message in second] == ["user", "assistant", "user", "assistant", "user"]
    assert second[:3] == last
    assert last[:1] == first
    assert second[-1].content[-1] == {"type": "text", "text": "hello"}
    assert [message.role for message in engine.store.history(NEXT)] == ["user", "assistant"]
    told = [event.data for event in engine.store.events if event.type == "model.completed"]
    assert len({data["prefix_hash"] for data in told}) == 1
    assert len({data["render_hash"] for data in told}) == 3
    assert not any("cache_break" in data for data in told)


def test_override_of_the_system_text_is_told_as_a_cache_break() -> None:
    """What the session sent before no longer helps the provider."""
    engine = Engine()
    engine.store.insert_turn(a_turn(id=NEXT, system_prompt_override="be long"))
    engine.says(answers("first"), answers("second"))
    engine.advance()
    engine.coordinator.advance(NEXT)
    told = [event.data for event in engine.store.events if event.type == "model.completed"]
    assert [data.get("cache_break") for data in told] == [None, True]
    assert engine.model.requests[1].system == "be long"


def test_turn_nobody_can_prepare_now_is_put_off() -> None:
    """A journal that does not answer is no failure of the turn: it is looked at again."""
    engine = Engine()
    engine.seen_store.before["history"].append(raising(TransientError("busy")))
    engine.advance()
    assert (engine.turn.status, engine.turn.owner) == (TurnStatus.RUNNING, None)
    engine.says(answers("done"))
    engine.advance()
    assert engine.turn.output_text == "done"


def test_turn_that_nobody_follows_asks_for_no_next() -> None:
    """A session of one turn costs nothing at its end."""
    engine = Engine()
    engine.seen_store.before["next_of_session"].append(raising(AssertionError("asked")))
    engine.says(answers("alone"))
    engine.advance()
    assert engine.turn.status is TurnStatus.COMPLETED
    assert engine.sent.advanced == []


def test_cancelled_turn_ends_before_its_time_and_the_third_still_waits() -> None:
    """A queued turn can be cancelled at once; the one after it waits for the first all the same."""
    engine = engine_with_two()
    engine.store.insert_turn(a_turn(id="third"))
    engine.store.cancel(NEXT)
    engine.coordinator.advance(NEXT)
    engine.coordinator.advance("third")
    assert [engine.store.turns[each].status for each in (TURN_ID, NEXT, "third")] == ["queued", "cancelled", "queued"]
    engine.says(answers("first"))
    engine.advance()
    assert engine.sent.advanced[-1] == ("third", "interactive")


def test_last_of_a_session_whose_others_have_ended_wakes_nobody() -> None:
    """The one that followed was cancelled: there is nobody to tell."""
    engine = engine_with_two()
    engine.store.cancel(NEXT)
    engine.coordinator.advance(NEXT)
    engine.says(answers("first"))
    engine.advance()
    assert engine.sent.advanced == []


def test_turn_given_up_by_its_only_driver_is_cancelled_once() -> None:
    """Whatever held it; one that is over stays as it is."""
    engine = Engine()
    engine.dispatched("look")
    engine.store.transact(TURN_ID, abandon)
    assert (engine.turn.status, engine.event_types[-1]) == (TurnStatus.CANCELLED, "turn.cancelled")
    engine.store.transact(TURN_ID, abandon)
    assert engine.event_types.count("turn.cancelled") == 1
