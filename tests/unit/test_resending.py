"""When calls that have not started are sent again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness_worker.core.records import Call
from harness_worker.core.registration.effects import Effect
from harness_worker.core.resending import LONGEST_PAUSE, Resend, send_again
from tests.unit.builders import NOW, TIMING, a_call, a_turn, a_write, ended, pending, snapshot
from tests.unit.engine_kit import TURN_ID, Engine

QUEUED_S = 3_600.0


def sent(*calls: Call, looks: int, waiting: tuple[Call, ...] | None = None) -> Resend:
    """What a visit sends of these calls; all that is open waits, if nothing else is said."""
    found = snapshot(a_turn(looks=looks), *calls)
    return send_again(found, tuple(c for c in calls if c.is_open) if waiting is None else waiting, timing=TIMING)


@pytest.mark.parametrize("call", [pending(a_call()), pending(a_write())])
def test_pauses_between_copies_double_up_to_a_cap(call: Call) -> None:
    """A message may be lost at any time, and found late rather than never; a long queue does not fill with copies."""
    due = [looks for looks in range(1, 70) if sent(call, looks=looks - 1).calls]
    assert due == [1, 2, 4, 8, LONGEST_PAUSE, 2 * LONGEST_PAUSE, 3 * LONGEST_PAUSE, 4 * LONGEST_PAUSE]


def test_lost_call_is_sent_at_once_and_counting_begins_anew() -> None:
    """Its process is dead, which has nothing to do with the queue; what that process had reserved goes with it."""
    calls = (pending(a_call(0)), pending(a_call(1)))
    again = replace(calls[0], attempt=2)
    assert sent(*calls, looks=4, waiting=(again, calls[1])) == Resend(calls=(again, calls[1]), looks=0)


def test_link_that_was_just_sent_is_waited_for() -> None:
    """The link before it ended since the last look-in, and sent it: the first copy is due at the next one."""
    rest = pending(a_write(1))
    assert sent(replace(ended(a_write(0)), finished_at=NOW - 3), rest, looks=6) == Resend(calls=(), looks=0)
    assert sent(replace(ended(a_write(0)), finished_at=NOW - 5), rest, looks=6) == Resend(calls=(), looks=7)
    assert sent(replace(ended(a_write(0)), finished_at=NOW - 3), rest, looks=0) == Resend(calls=(rest,), looks=1)


@pytest.mark.parametrize("before", [a_call(0), a_write(0, step=1), a_write(3)])
def test_only_a_link_of_its_own_chain_sends_a_call(before: Call) -> None:
    """A read, another step's call, and one behind it are none."""
    over = replace(ended(before), finished_at=NOW)
    assert sent(over, pending(a_write(2)), looks=6) == Resend(calls=(), looks=7)


def test_turn_whose_calls_run_sends_nothing() -> None:
    """It is looked at, and that is all."""
    assert sent(pending(a_call()), looks=0, waiting=()) == Resend(calls=(), looks=1)


@pytest.mark.parametrize("tool", ["look", "write"])
def test_long_queue_is_not_filled_with_copies(tool: str) -> None:
    """A call that waits for a process for an hour is sent some sixty times; once a look-in would be nine hundred."""
    engine = Engine(look=Effect.READ_ONLY, write=Effect.LOCAL_WRITE)
    engine.store.turns[TURN_ID] = replace(engine.turn, deadline_at=engine.clock.now_s + 2 * QUEUED_S)
    engine.dispatched(tool)
    until = engine.clock.now_s + QUEUED_S
    while (next_look := engine.turn.wake_at or until) < until:
        engine.clock.now_s = next_look
        engine.advance()
    pause_s = LONGEST_PAUSE * 2 * TIMING.look_s
    assert QUEUED_S / pause_s <= len(engine.sent.chains) <= QUEUED_S / pause_s + 6
    engine.run()
    assert engine.ran == [tool]
