"""The contract of ``ports.Gate``: what both gates, in memory and on Valkey, must do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from harness_worker.adapters.memory.gate import MemoryGate
from harness_worker.adapters.redis.client import RedisClient
from harness_worker.adapters.redis.gate import RedisGate
from harness_worker.core.reads import ReadState
from harness_worker.ports import Admission, Gate
from harness_worker.testing.waiting import wait_until
from tests.contract.gate_kit import (
    MINUTE_MS,
    READ,
    RUNNER,
    a_pass,
    a_run,
    admit,
    asked,
    beaten,
    new_turn_id,
    opened,
    running,
    settle,
    state,
    watched,
)

GateFactory = Callable[[float], Gate]
LONG_TTL_S = 60.0
SHORT_TTL_S = 0.3
STEADY_TTL_S = 3.0
"""Longer than a slow machine takes from one heartbeat to the next question."""


@pytest.fixture(params=["memory", "valkey"])
def make_gate(request: pytest.FixtureRequest) -> Iterator[GateFactory]:
    """Makes a gate with a given lease TTL in seconds."""
    if request.param == "memory":
        yield lambda ttl_s: MemoryGate(lease_ttl_s=ttl_s)
        return
    client = RedisClient(request.getfixturevalue("valkey_url"))
    yield lambda ttl_s: watched(RedisGate(client, lease_ttl_s=ttl_s), client)
    client.disconnect()


@pytest.fixture
def gate(make_gate: GateFactory) -> Gate:
    """A gate whose reads stay alive without heartbeats."""
    return make_gate(LONG_TTL_S)


@pytest.fixture
def hasty_gate(make_gate: GateFactory) -> Gate:
    """A gate whose reads are lost after a moment without a heartbeat."""
    return make_gate(SHORT_TTL_S)


@pytest.fixture
def steady_gate(make_gate: GateFactory) -> Gate:
    """A gate whose reads are lost without heartbeats, but stay alive with occasional ones."""
    return make_gate(STEADY_TTL_S)


# --- fences ---------------------------------------------------------------------------------------------------------


def test_raise_lets_only_the_highest_fence_in(gate: Gate) -> None:
    """A fence is let in if no higher one came before; the same one may come twice."""
    turn_id = new_turn_id()
    assert [gate.raise_fence(turn_id, fence) for fence in (2, 2, 1, 3, 2)] == [True, True, False, True, False]


@pytest.mark.parametrize("remaining_ms", [2**63, 10**303], ids=["2^63", "10^303"])
def test_open_takes_any_time(gate: Gate, remaining_ms: int) -> None:
    """A budget may allow more time than the server can count."""
    turn_id = opened(gate, a_pass(remaining_ms=remaining_ms))
    assert admit(gate, turn_id) is Admission.OK


def test_raise_by_a_higher_fence_reopens(gate: Gate) -> None:
    """A visit that finds the gate closed by an earlier one can dispatch again; the same fence cannot reopen."""
    turn_id = opened(gate)
    gate.close(turn_id, 1)
    assert gate.raise_fence(turn_id, 1)
    assert not gate.open(turn_id, 1, [a_pass("0.1")])
    assert gate.raise_fence(turn_id, 2)
    assert gate.open(turn_id, 2, [a_pass("0.1")])
    assert admit(gate, turn_id, "0.1") is Admission.OK


def test_raise_reopening_leaves_closed_calls_closed(gate: Gate) -> None:
    """Reopening is for new attempts: an attempt that was given up stays given up."""
    turn_id = running(gate)
    state(gate, turn_id, close=True)
    gate.close(turn_id, 1)
    gate.raise_fence(turn_id, 2)
    assert state(gate, turn_id, fence=2) is ReadState.CLOSED
    assert not gate.complete(a_run(turn_id), "late")


def test_open_without_gate_is_refused(gate: Gate) -> None:
    """Only raising makes a gate: a coordinator that was stopped since its claim must not start a read after a flush."""
    turn_id = new_turn_id()
    assert not gate.open(turn_id, 1, [a_pass()])
    assert admit(gate, turn_id) is Admission.CLOSED


def test_open_by_a_lower_fence_changes_nothing(gate: Gate) -> None:
    """A zombie coordinator registers nothing."""
    turn_id = opened(gate, fence=2)
    assert not gate.open(turn_id, 1, [a_pass("0.1")])
    assert admit(gate, turn_id, "0.1") is Admission.CLOSED


def test_open_of_a_closed_gate_is_refused(gate: Gate) -> None:
    """Nothing is dispatched through a closed gate."""
    turn_id = opened(gate)
    gate.close(turn_id, 1)
    assert not gate.open(turn_id, 1, [a_pass("0.1")])


def test_close_by_a_lower_fence_changes_nothing(gate: Gate) -> None:
    """A zombie coordinator closes nothing."""
    turn_id = opened(gate, fence=2)
    gate.close(turn_id, 1)
    assert admit(gate, turn_id) is Admission.OK


def test_settle_by_a_lower_fence_learns_and_changes_nothing(gate: Gate) -> None:
    """A zombie coordinator settles nothing, not even by closing."""
    turn_id = opened(gate, fence=2)
    assert admit(gate, turn_id) is Admission.OK
    assert state(gate, turn_id, fence=1, close=True) is ReadState.GONE
    assert state(gate, turn_id, fence=2) is ReadState.LIVE


def test_a_higher_fence_is_remembered_by_whatever_brings_it(gate: Gate) -> None:
    """After a flush a zombie may have made a new gate; closing that with a higher fence shuts it out for good."""
    turn_id = opened(gate, fence=1)
    gate.close(turn_id, 5)
    assert not gate.raise_fence(turn_id, 4)
    assert admit(gate, turn_id) is Admission.CLOSED


def test_close_of_a_turn_that_is_over_lets_nothing_in_and_repeats_be(gate: Gate) -> None:
    """Tickets and results are forgotten; a run that had not completed is late, a repeated completion is accepted."""
    turn_id = opened(gate, a_pass("0.0"), a_pass("0.1"), a_pass("0.2"))
    runs = [a_run(turn_id, "0.0"), a_run(turn_id, "0.1")]
    assert [admit(gate, turn_id, run.call_id) for run in runs] == [Admission.OK, Admission.OK]
    assert gate.complete(runs[0], "done")
    gate.close(turn_id, 1, is_over=True)
    assert [gate.complete(run, "done") for run in runs] == [True, False]
    assert [admit(gate, turn_id, call_id) for call_id in ("0.0", "0.1", "0.2")] == [Admission.CLOSED] * 3
    assert not gate.raise_fence(turn_id, 0)
    assert not gate.open(turn_id, 1, [a_pass("0.3")])
    assert not gate.goes_on(runs[1])


# --- admitting ------------------------------------------------------------------------------------------------------


def test_admit_gives_the_ticket_and_the_shorter_time(gate: Gate) -> None:
    """A read may run for its own cap or the rest of the turn, whichever is shorter; the ticket says what to run."""
    turn_id = opened(gate, a_pass("0.0", ticket='{"tool": "é"}'), a_pass("0.1", remaining_ms=10_000))
    capped = gate.admit(a_run(turn_id), 5_000)
    assert (capped.answer, capped.ticket) == (Admission.OK, '{"tool": "é"}')
    assert 4_000 < capped.remaining_ms <= 5_000
    assert 5_000 < gate.admit(a_run(turn_id, "0.1"), MINUTE_MS).remaining_ms <= 10_000


@pytest.mark.parametrize(("call_id", "attempt"), [("0.9", 1), (READ, 2), (READ, 0)])
def test_admit_of_what_was_not_opened_is_closed(gate: Gate, call_id: str, attempt: int) -> None:
    """An unknown call, a superseded attempt and one that is not yet registered do not start."""
    assert admit(gate, opened(gate), call_id, attempt) is Admission.CLOSED


def test_admit_is_granted_once(gate: Gate) -> None:
    """A message delivered twice starts one run, even in the same process."""
    turn_id = running(gate)
    assert admit(gate, turn_id, runner="host/2") is Admission.DUPLICATE
    assert admit(gate, turn_id) is Admission.DUPLICATE


def test_admit_is_granted_to_one_of_many_at_once(gate: Gate) -> None:
    """Admission is atomic."""
    turn_id = opened(gate)
    barrier = Barrier(8)

    def race(number: int) -> Admission:
        barrier.wait()
        return admit(gate, turn_id, runner=f"host/{number}")

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(race, range(8)))
    assert sorted(answers) == [*[Admission.DUPLICATE] * 7, Admission.OK]


def test_admit_of_a_completed_read_is_done(gate: Gate) -> None:
    """A redelivered message for a read that has completed has nothing to do."""
    turn_id = running(gate)
    gate.complete(a_run(turn_id), "x")
    assert admit(gate, turn_id) is Admission.DONE


def test_admit_of_a_lost_run_says_so(gate: Gate) -> None:
    """A redelivered message is told that the earlier run has died, and does not take its place."""
    turn_id = running(gate)
    gate.lose(a_run(turn_id))
    assert admit(gate, turn_id, runner="host/2") is Admission.LOST


def test_admit_of_a_silent_run_says_lost(hasty_gate: Gate) -> None:
    """A run without a heartbeat for the length of the lease is presumed dead."""
    turn_id = running(hasty_gate)
    wait_until(lambda: admit(hasty_gate, turn_id, runner="host/2") is Admission.LOST, "the silent run to be lost")


def test_admit_past_the_deadline_is_closed(gate: Gate) -> None:
    """Nothing starts when the turn's time is over."""
    assert admit(gate, opened(gate, a_pass(remaining_ms=-1))) is Admission.CLOSED


def test_admit_through_a_closed_gate_is_closed(gate: Gate) -> None:
    """Nothing starts after the end."""
    turn_id = opened(gate)
    gate.close(turn_id, 1)
    assert admit(gate, turn_id) is Admission.CLOSED


@pytest.mark.parametrize(("attempt", "admitted"), [(1, False), (2, True), (3, True)])
def test_admits_write_refuses_a_superseded_attempt(gate: Gate, attempt: int, admitted: bool) -> None:
    """A write starts unless the gate knows a higher attempt of it."""
    turn_id = opened(gate, a_pass(attempt=2))
    assert gate.admits_write(a_run(turn_id, attempt=attempt)) is admitted


def test_admits_write_only_minds_a_gate_that_is_there(gate: Gate) -> None:
    """SQL decides about writes: a flushed gate refuses none of them, a closed one all."""
    assert gate.admits_write(a_run(new_turn_id()))
    turn_id = opened(gate)
    assert gate.admits_write(a_run(turn_id, "0.9"))
    gate.close(turn_id, 1)
    assert not gate.admits_write(a_run(turn_id))


# --- attempts -------------------------------------------------------------------------------------------------------


def test_a_higher_attempt_supersedes(gate: Gate) -> None:
    """Once a read is run again, the earlier run can no longer complete and is forgotten."""
    turn_id = running(gate)
    gate.open(turn_id, 1, [a_pass(attempt=2, ticket="again")])
    assert not gate.complete(a_run(turn_id), "late")
    assert state(gate, turn_id, attempt=1) is ReadState.GONE
    assert state(gate, turn_id, attempt=2) is ReadState.UNADMITTED
    assert gate.admit(a_run(turn_id, attempt=2), MINUTE_MS).ticket == "again"


def test_a_higher_attempt_starts_without_a_completion(gate: Gate) -> None:
    """The result of an earlier attempt is not that of the later one."""
    turn_id = running(gate)
    gate.complete(a_run(turn_id), "old")
    gate.open(turn_id, 1, [a_pass(attempt=2)])
    assert state(gate, turn_id, attempt=2) is ReadState.UNADMITTED
    assert admit(gate, turn_id, attempt=2) is Admission.OK


@pytest.mark.parametrize("attempt", [1, 2])
def test_opening_a_known_attempt_again_leaves_it_alone(gate: Gate, attempt: int) -> None:
    """Sending a call again never disturbs the run that the first message started."""
    turn_id = running(gate, a_pass(attempt=2))
    assert gate.open(turn_id, 1, [a_pass(attempt=attempt, remaining_ms=-1)])
    assert state(gate, turn_id, attempt=2) is ReadState.LIVE
    assert gate.complete(a_run(turn_id, attempt=2), "x")


@pytest.mark.parametrize("attempt", [1, 2])
def test_another_call_by_a_known_name_begins_anew(gate: Gate, attempt: int) -> None:
    """If the journal was restored and the model asked again, results of its earlier calls do not answer new ones."""
    turn_id = running(gate, a_pass(attempt=2, ticket="old"))
    assert gate.complete(a_run(turn_id, attempt=2), "old")
    anew = [asked(READ, attempt, "toolu_2")]
    assert [read.state for read in gate.settle(turn_id, 1, anew, close=False)] == [ReadState.UNADMITTED]
    assert gate.open(turn_id, 1, [a_pass(attempt=attempt, ticket="new", tool_use_id="toolu_2")])
    assert [read.state for read in gate.settle(turn_id, 1, anew, close=False)] == [ReadState.UNADMITTED]
    assert gate.admit(a_run(turn_id, attempt=attempt), MINUTE_MS).ticket == "new"


# --- completing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("completion", ["", "{}", '{"é": "\\u0000 \\"]"}', "\ud800", "x" * 1_000_000])
def test_a_completion_is_settled_as_it_was_given(gate: Gate, completion: str) -> None:
    """Settling returns the completion verbatim, who ran it, and when: seconds since the epoch, to the microsecond."""
    before = time.time()
    turn_id = running(gate)
    assert gate.complete(a_run(turn_id), completion)
    read = settle(gate, turn_id)
    assert (read.call_id, read.state, read.completion, read.worker) == (READ, None, completion, RUNNER)
    assert read.started_at is not None
    assert read.finished_at is not None
    assert before - 1e-3 <= read.started_at < read.finished_at <= time.time() + 1e-3


def test_a_completion_outlives_the_gate(gate: Gate) -> None:
    """A completion that was accepted before the end is reported even though the gate is closed."""
    turn_id = running(gate)
    gate.complete(a_run(turn_id), "x")
    gate.close(turn_id, 1)
    assert settle(gate, turn_id, close=True).completion == "x"
    assert settle(gate, turn_id).completion == "x"


def test_complete_may_be_said_again(gate: Gate) -> None:
    """A run that missed the answer may complete again, even after the end, but cannot change its result."""
    turn_id = running(gate)
    assert gate.complete(a_run(turn_id), "x")
    gate.close(turn_id, 1)
    assert gate.complete(a_run(turn_id), "x")
    assert not gate.complete(a_run(turn_id), "y")
    assert settle(gate, turn_id).completion == "x"


def test_complete_by_another_run_is_refused(gate: Gate) -> None:
    """Only the admitted run can complete: no other process, no other attempt, and none before admission."""
    turn_id = opened(gate)
    assert not gate.complete(a_run(turn_id), "x")
    admit(gate, turn_id)
    assert not gate.complete(a_run(turn_id, runner="host/2"), "x")
    assert not gate.complete(a_run(turn_id, attempt=2), "x")
    assert not gate.complete(a_run(turn_id, "0.9"), "x")
    assert not gate.complete(a_run(new_turn_id()), "x")
    assert state(gate, turn_id) is ReadState.LIVE


def test_complete_through_a_closed_gate_is_refused(gate: Gate) -> None:
    """Nothing is accepted after the end."""
    turn_id = running(gate)
    gate.close(turn_id, 1)
    assert not gate.complete(a_run(turn_id), "x")


def test_complete_past_its_own_cap_is_refused(gate: Gate) -> None:
    """A read's own cap counts from its admission, and is a deadline like the turn's."""
    turn_id = opened(gate)
    assert gate.admit(a_run(turn_id), 20).answer is Admission.OK
    wait_until(lambda: beaten(gate, turn_id) is ReadState.EXPIRED, "the read's own cap to pass")
    assert not gate.complete(a_run(turn_id), "x")


def test_complete_past_the_deadline_is_refused_before_anyone_settles(gate: Gate) -> None:
    """The deadline itself closes the read: what comes after it is late, even if nobody has settled."""
    turn_id = opened(gate)
    assert gate.admit(a_run(turn_id), -1).answer is Admission.OK
    assert not gate.complete(a_run(turn_id), "x")


# --- settling -------------------------------------------------------------------------------------------------------


def test_settle_says_how_long_a_live_read_is_believed(gate: Gate) -> None:
    """It is believed until its lease expires, counted from its last heartbeat; other reads get no such time."""
    turn_id = opened(gate)
    began = time.monotonic()
    assert admit(gate, turn_id) is Admission.OK
    lease_s = settle(gate, turn_id).lease_s
    passed_s = time.monotonic() - began
    assert lease_s is not None
    assert LONG_TTL_S - passed_s - 0.001 <= lease_s <= LONG_TTL_S + 0.001
    gate.lose(a_run(turn_id))
    assert settle(gate, turn_id).lease_s is None


def test_settle_tells_each_read_in_the_order_asked(gate: Gate) -> None:
    """One question gets one atomic answer about all reads."""
    turn_id = running(gate, a_pass("0.0"), a_pass("0.1"), a_pass("0.2"))
    gate.open(turn_id, 1, [a_pass("0.3"), a_pass("0.4", remaining_ms=-1)])
    gate.complete(a_run(turn_id, "0.1"), "x")
    gate.lose(a_run(turn_id, "0.2"))
    expected = [
        ("0.9", 1, ReadState.UNADMITTED),
        ("0.4", 1, ReadState.EXPIRED),
        ("0.3", 1, ReadState.UNADMITTED),
        ("0.2", 1, ReadState.LOST),
        ("0.1", 1, None),
        ("0.0", 1, ReadState.LIVE),
    ]
    found = gate.settle(turn_id, 1, [asked(call_id, attempt) for call_id, attempt, _ in expected], close=False)
    assert [(read.call_id, read.state) for read in found] == [(call_id, what) for call_id, _, what in expected]


def test_settle_of_an_attempt_not_opened_yet_says_unadmitted(gate: Gate) -> None:
    """If settled between the commit of a higher attempt and its opening, it is sent again and not counted as lost."""
    turn_id = running(gate)
    gate.lose(a_run(turn_id))
    assert state(gate, turn_id, attempt=1) is ReadState.LOST
    assert state(gate, turn_id, attempt=2) is ReadState.UNADMITTED
    assert gate.open(turn_id, 1, [a_pass(attempt=2)])
    assert gate.admit(a_run(turn_id, attempt=2), MINUTE_MS).answer is Admission.OK


def test_settle_of_a_call_not_opened_yet_says_unadmitted(gate: Gate) -> None:
    """The turn's first gate knows every call, so one that it does not know was never opened."""
    turn_id = new_turn_id()
    gate.raise_fence(turn_id, 1)
    gate.raise_fence(turn_id, 2)
    assert state(gate, turn_id, fence=2) is ReadState.UNADMITTED


def test_settle_in_a_gate_made_anew_says_gone(gate: Gate) -> None:
    """A gate made by a later visit may replace one that was flushed, so a call that it does not know may have run."""
    turn_id = new_turn_id()
    gate.raise_fence(turn_id, 2)
    assert state(gate, turn_id, fence=2) is ReadState.GONE


def test_settle_in_a_gate_made_anew_by_the_first_visit_says_gone(gate: Gate) -> None:
    """The first visit stalled, the second opened calls in a gate that was flushed; then the first makes a new one."""
    turn_id = new_turn_id()
    gate.raise_fence(turn_id, 1)
    gate.raise_fence(turn_id, 3)
    assert state(gate, turn_id, fence=3) is ReadState.GONE


def test_settle_after_a_close_by_a_skipped_fence_says_gone(gate: Gate) -> None:
    """The skipped fence was let into a gate that was flushed since, and may have opened calls there."""
    turn_id = new_turn_id()
    gate.raise_fence(turn_id, 1)
    gate.close(turn_id, 2)
    gate.raise_fence(turn_id, 3)
    assert state(gate, turn_id, fence=3) is ReadState.GONE


def test_a_fence_that_was_not_let_in_opens_and_settles_nothing(gate: Gate) -> None:
    """The fence was let into a gate that was flushed; the present one was made by a zombie with a lower fence."""
    turn_id = new_turn_id()
    gate.raise_fence(turn_id, 1)
    assert not gate.open(turn_id, 2, [a_pass()])
    assert state(gate, turn_id, fence=2) is ReadState.GONE
    assert admit(gate, turn_id) is Admission.CLOSED


def test_settle_without_gate_says_gone(gate: Gate) -> None:
    """After a flush nothing is known, and settling does not make a new gate."""
    turn_id = new_turn_id()
    assert state(gate, turn_id, close=True) is ReadState.GONE
    assert not gate.open(turn_id, 1, [a_pass()])


def test_close_without_gate_makes_none(gate: Gate) -> None:
    """A turn ends though its gate was flushed, and nothing is left behind."""
    turn_id = new_turn_id()
    gate.close(turn_id, 1)
    gate.close(turn_id, 1, is_over=True)
    assert gate.admits_write(a_run(turn_id))
    assert gate.raise_fence(turn_id, 1)


def test_settle_of_nothing_is_nothing(gate: Gate) -> None:
    """A turn without reads can be settled."""
    assert gate.settle(opened(gate), 1, [], close=True) == []


def test_settle_closes_what_it_reports_as_lost(gate: Gate) -> None:
    """A run reported as lost is refused afterwards, because its call may be run again."""
    turn_id = running(gate)
    gate.lose(a_run(turn_id))
    assert state(gate, turn_id) is ReadState.LOST
    assert not gate.complete(a_run(turn_id), "late")
    assert state(gate, turn_id) is ReadState.CLOSED


def test_settle_leaves_live_and_unadmitted_reads_open(gate: Gate) -> None:
    """Looking does not disturb reads that are in time."""
    turn_id = running(gate, a_pass(READ))
    gate.open(turn_id, 1, [a_pass("0.1")])
    gate.settle(turn_id, 1, [asked(READ), asked("0.1")], close=False)
    assert gate.complete(a_run(turn_id), "x")
    assert admit(gate, turn_id, "0.1") is Admission.OK


def test_settle_with_close_reports_as_found_and_closes(gate: Gate) -> None:
    """This is the end of a turn: a read that has not completed by now never will."""
    turn_id = running(gate, a_pass(READ))
    gate.open(turn_id, 1, [a_pass("0.1")])
    found = gate.settle(turn_id, 1, [asked(READ), asked("0.1")], close=True)
    assert [read.state for read in found] == [ReadState.LIVE, ReadState.UNADMITTED]
    assert not gate.complete(a_run(turn_id), "late")
    assert admit(gate, turn_id, "0.1") is Admission.CLOSED
    found = gate.settle(turn_id, 1, [asked(READ), asked("0.1")], close=False)
    assert [read.state for read in found] == [ReadState.CLOSED, ReadState.CLOSED]


def test_settle_says_expired_of_a_closed_read_that_had_its_time(gate: Gate) -> None:
    """A read closed early may run again, one alive at its deadline timed out; if both apply, the deadline wins."""
    turn_id = opened(gate)
    gate.admit(a_run(turn_id), 20)
    state(gate, turn_id, close=True)
    wait_until(lambda: beaten(gate, turn_id) is ReadState.EXPIRED, "the closed read's deadline to pass")
    gate.lose(a_run(turn_id))
    assert state(gate, turn_id) is ReadState.EXPIRED, "ended because its time was over: no loss"


def test_settle_says_lost_of_a_read_that_died_before_its_deadline(gate: Gate) -> None:
    """Although nobody looked before the deadline, it did not use its whole time, and may run again."""
    turn_id = opened(gate)
    assert gate.admit(a_run(turn_id), 20).answer is Admission.OK
    gate.lose(a_run(turn_id))
    wait_until(lambda: admit(gate, turn_id) is Admission.CLOSED, "its deadline to pass")
    assert state(gate, turn_id) is ReadState.LOST
    assert not gate.complete(a_run(turn_id), "x")


def test_settle_waits_for_a_read_that_may_have_had_its_time(hasty_gate: Gate) -> None:
    """Past its deadline, a silent read counts as alive until its last heartbeat is too old, and then as lost."""
    turn_id = opened(hasty_gate)
    assert hasty_gate.admit(a_run(turn_id), 1).answer is Admission.OK
    wait_until(lambda: admit(hasty_gate, turn_id) is Admission.CLOSED, "its deadline to pass")
    assert state(hasty_gate, turn_id) in (ReadState.LIVE, ReadState.LOST)
    wait_until(lambda: state(hasty_gate, turn_id) is ReadState.LOST, "its beat to be old")


def test_settle_and_complete_agree_whoever_is_first(gate: Gate) -> None:
    """A completion that got ``True`` is in the settlement; one that came after the settlement got ``False``."""
    barrier = Barrier(2)

    def finish(turn_id: str) -> bool:
        barrier.wait()
        return gate.complete(a_run(turn_id), "x")

    def give_up(turn_id: str) -> bool:
        barrier.wait()
        return settle(gate, turn_id, close=True).completion == "x"

    with ThreadPoolExecutor(2) as pool:
        for _ in range(50):
            turn_id = running(gate)
            accepted, seen = pool.submit(finish, turn_id), pool.submit(give_up, turn_id)
            assert accepted.result() == seen.result()


# --- signs of life --------------------------------------------------------------------------------------------------


def test_beats_of_several_turns_go_together(steady_gate: Gate) -> None:
    """A worker sends one heartbeat for all its runs, whatever turns they belong to; without one a run is lost."""
    turns = [running(steady_gate, a_pass("0.0"), a_pass("0.1")) for _ in range(3)]
    silent = running(steady_gate)
    runs = [a_run(turn_id, call_id) for turn_id in turns for call_id in ("0.0", "0.1")]

    def silent_is_lost() -> bool:
        steady_gate.beat([*runs, a_run(new_turn_id())])
        return state(steady_gate, silent) is ReadState.LOST

    wait_until(silent_is_lost, "the silent run to be lost")
    steady_gate.beat(runs)
    assert [steady_gate.complete(run, "x") for run in runs] == [True] * 6
    steady_gate.beat([])


@pytest.mark.parametrize("impostor", [{"runner": "host/2"}, {"attempt": 2}, {"call_id": "0.9"}])
def test_beats_of_another_run_do_not_count(hasty_gate: Gate, impostor: dict[str, str]) -> None:
    """Only heartbeats of the admitted run keep it alive."""
    turn_id = running(hasty_gate)

    def lost() -> bool:
        hasty_gate.beat([a_run(turn_id, **impostor)])  # pyright: ignore[reportArgumentType]
        return state(hasty_gate, turn_id) is ReadState.LOST

    wait_until(lost, "the run that does not beat to be lost")


def test_a_beat_does_not_bring_back_the_dead(gate: Gate) -> None:
    """A heartbeat that was under way when its process died does not revive the run."""
    turn_id = running(gate)
    gate.lose(a_run(turn_id))
    gate.beat([a_run(turn_id)])
    assert state(gate, turn_id) is ReadState.LOST


@pytest.mark.parametrize("other", [{"runner": "host/2"}, {"attempt": 2}, {"call_id": "0.9"}])
def test_lose_only_touches_its_own_run(gate: Gate, other: dict[str, str]) -> None:
    """The death of another process does not affect this run."""
    turn_id = running(gate)
    gate.lose(a_run(turn_id, **other))  # pyright: ignore[reportArgumentType]
    gate.lose(a_run(new_turn_id()))
    assert state(gate, turn_id) is ReadState.LIVE


def test_lose_leaves_a_completion_alone(gate: Gate) -> None:
    """A process may die after its read has completed."""
    turn_id = running(gate)
    gate.complete(a_run(turn_id), "x")
    gate.lose(a_run(turn_id))
    assert settle(gate, turn_id).completion == "x"


def test_read_that_waited_goes_on_while_it_is_admitted(gate: Gate) -> None:
    """An admitted read may still start after a wait; one of another process, a superseded or a closed one may not."""
    turn_id = running(gate)
    assert gate.goes_on(a_run(turn_id))
    assert not gate.goes_on(a_run(turn_id, runner="host/2"))
    gate.open(turn_id, 1, [a_pass(attempt=2)])
    assert not gate.goes_on(a_run(turn_id))
    turn_id = running(gate)
    gate.close(turn_id, 1)
    assert not gate.goes_on(a_run(turn_id))
    assert not gate.goes_on(a_run(new_turn_id()))


def test_read_that_waited_too_long_does_not_go_on(gate: Gate) -> None:
    """It may not start once its turn was closed, or once its deadline has passed."""
    turn_id = running(gate)
    settle(gate, turn_id, close=True)
    assert not gate.goes_on(a_run(turn_id))
    turn_id = opened(gate)
    assert gate.admit(a_run(turn_id), 1).answer is Admission.OK
    wait_until(lambda: not gate.goes_on(a_run(turn_id)), "its cap to pass")
