"""Which calls of a plan are sent next, and which end as denied now that it is their wave's turn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness_worker.core.budget import BudgetLimits
from harness_worker.core.outcomes import content_of
from harness_worker.core.recall import Recall
from harness_worker.core.records import Call, CallStatus, Turn
from harness_worker.core.replay import fingerprint
from harness_worker.core.segments import Segment, next_segment
from tests.unit.builders import NOW, a_call, a_held_turn, a_write, denied, ended, pending

TURN = a_held_turn(budget=BudgetLimits(max_tool_calls=10))


def chosen(*calls: Call, turn: Turn = TURN) -> Segment:
    """What comes next."""
    segment = next_segment(turn, calls, now=NOW)
    assert all(call.status is CallStatus.ENDED for call in segment.denied)
    return segment


def segment(*calls: Call, turn: Turn = TURN) -> tuple[list[int], list[int]]:
    """The positions of the calls that end as denied now, and of those sent."""
    found = chosen(*calls, turn=turn)
    assert found.asked == ()
    return [call.position for call in found.denied], [call.position for call in found.sent]


def same(position: int, **changes: object) -> Call:
    """An idempotent write that asks for the same at every position."""
    return a_write(position, tool="save", idempotent=True, **changes)


def test_segment_is_one_wave_of_reads() -> None:
    """Reads of later waves wait."""
    assert segment(a_call(0), a_call(1), a_call(2, wave=1)) == ([], [0, 1])


def test_segment_is_a_run_of_writes() -> None:
    """Sequential calls are sent as one chain, up to the next read."""
    assert segment(a_write(0), a_write(1), a_call(2, wave=2), a_write(3)) == ([], [0, 1])


def test_segment_begins_where_the_last_one_ended() -> None:
    """It takes planned calls in program order, whatever order they are given in."""
    assert segment(a_write(2, wave=1), ended(a_call(0)), ended(a_call(1))) == ([], [2])
    assert segment(a_write(1), a_write(0)) == ([], [0, 1])
    assert segment(ended(a_call())) == ([], [])


def test_segment_ends_denied_calls_when_their_wave_comes() -> None:
    """A denied read ends with its wave, and a denied call between writes only after those before it."""
    assert segment(a_call(0), denied(a_call(1))) == ([1], [0])
    assert segment(denied(a_call(0)), denied(a_call(1))) == ([0, 1], [])
    assert segment(denied(a_write(0)), a_write(1)) == ([0], [1])
    assert segment(a_write(0), denied(a_write(1)), a_write(2)) == ([], [0])
    assert segment(denied(a_write(0)), a_call(1, wave=1), denied(a_call(2, wave=1))) == ([0, 2], [1])


def test_open_calls_of_other_waves_do_not_count_as_planned() -> None:
    """Calls that were sent are not sent again."""
    assert segment(pending(a_call(0)), a_write(1)) == ([], [1])


def test_segment_stops_before_a_repeat_of_its_own() -> None:
    """An idempotent call equal to an unfinished one is judged once that has ended."""
    assert segment(same(0), same(1)) == ([], [0])
    assert segment(ended(same(0)), same(1)) == ([1], [])
    assert segment(same(0), a_write(1), same(2)) == ([], [0, 1])
    assert segment(ended(same(0)), ended(a_write(1)), same(2)) == ([], [2])


def test_segment_sends_what_is_no_repeat_once_a_write_goes_before_it() -> None:
    """Duplicates are judged in program order, counting the calls sent in the same segment."""
    turn = replace(TURN, recall=Recall(done={fingerprint("save", {}): "0.0"}))
    assert segment(same(0, step=1), a_write(1, step=1), turn=turn) == ([0], [1])
    assert segment(a_write(0, step=1), same(1, step=1), turn=turn) == ([], [0, 1])


def test_segment_takes_over_the_key_of_a_doubt_once() -> None:
    """The first repeat of a doubtful call runs with its key; a second one has a key of its own."""
    turn = replace(TURN, recall=Recall(doubtful={fingerprint("pay", {}): "turn:0.0"}))
    sent = chosen(a_write(0, step=1, tool="pay"), a_write(1, step=1, tool="pay"), turn=turn).sent
    assert [call.idempotency_key for call in sent] == ["turn:0.0", "turn:1.1"]


def test_segment_denies_what_the_budget_has_no_room_for() -> None:
    """The budget is used in program order, and denied calls use none of it."""
    turn = replace(TURN, budget=BudgetLimits(max_tool_calls=2))
    assert segment(denied(a_call(0)), a_call(1), a_call(2), a_call(3), turn=turn) == ([0, 3], [1, 2])
    assert segment(a_write(0), a_write(1), a_write(2), turn=turn) == ([], [0, 1])


def test_segment_asks_hooks_about_all_that_would_be_sent() -> None:
    """Nothing is sent before that; calls with wrong arguments are asked about too, as a hook may correct them."""
    found = chosen(a_call(0, hooked=True), denied(a_call(1, hooked=True)), a_call(2, wave=1, hooked=True))
    assert ([call.position for call in found.asked], found.sent, found.denied) == ([0, 1], (), ())


def test_call_takes_no_key_over_before_its_hooks_had_their_word() -> None:
    """With the arguments that a hook gives, it may be no repeat."""
    turn = replace(TURN, recall=Recall(doubtful={fingerprint("pay", {}): "turn:0.0"}))
    (asked,) = chosen(a_write(0, step=1, tool="pay", hooked=True), turn=turn).asked
    assert asked.idempotency_key == "turn:1.0"


def test_segment_sends_what_hooks_have_left_together() -> None:
    """Calls about which hooks have yet to be asked are left for later."""
    found = chosen(a_call(0), a_call(1, hooked=True))
    assert ([call.position for call in found.sent], found.asked) == ([0], ())


@pytest.mark.parametrize(
    "limits", [{"max_tool_calls": 0}, {"max_tool_calls": 1}, {"max_tool_calls": 9, "timeout_s": 60}]
)
def test_segment_asks_hooks_before_it_looks_what_is_left(limits: dict[str, int]) -> None:
    """Budget and time are checked after the hooks, whether or not any is left."""
    turn = replace(TURN, budget=BudgetLimits(**limits), deadline_at=NOW + 1)
    found = chosen(a_call(0, hooked=True), a_call(1, hooked=True), turn=turn)
    assert ([call.position for call in found.asked], found.denied) == ([0, 1], ())
    told = chosen(a_call(0), denied(a_call(1)), turn=turn)
    assert [call.position for call in told.denied] == [0, 1]


def test_segment_does_not_ask_hooks_about_what_is_refused_before() -> None:
    """Replay and blocked tools are checked before the hooks."""
    turn = replace(TURN, recall=Recall(blocked={"tool0": "0.7"}))
    (call,) = chosen(a_call(0, step=1, hooked=True), turn=turn).denied
    assert call.outcome is not None
    assert content_of(call.outcome).startswith("denied: blocked: tool0 failed for good in call 0.7")
