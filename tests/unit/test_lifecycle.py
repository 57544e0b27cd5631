"""The events that follow from a change of calls: each wave and each call told once, in program order."""

from __future__ import annotations

from dataclasses import replace

from harness_worker.core.lifecycle import call_events, decide, end_call, merge
from harness_worker.core.outcomes import DenialReason, ToolArtifactReference, ToolDenied
from harness_worker.core.records import Call, CallStatus, EventDraft
from tests.unit.builders import NOW, a_call, a_turn, a_write, ended, event_types, failed, ok, pending, running, snapshot


def told(before: tuple[Call, ...], changed: tuple[Call, ...]) -> list[str]:
    """The events as short text: ``wave.started 0``, ``tool.completed 0.1``."""
    events = call_events(before, changed)
    return [f"{event.type} {event.data.get('wave', event.data.get('call_id'))}" for event in events]


def test_end_call_sets_outcome_and_time_once() -> None:
    """A call that ended keeps its outcome, whatever comes later."""
    call = running(a_write())
    over = end_call(call, ok(call), now=NOW + 2)
    assert (over.status, over.outcome, over.finished_at) == (CallStatus.ENDED, ok(call), NOW + 2)
    assert over.lease_until is None
    assert end_call(over, failed(call), now=NOW + 3) is over


def test_end_call_keeps_the_time_the_gate_gave() -> None:
    """A read's times are those of its attempt, not of its collection."""
    assert end_call(replace(a_call(), finished_at=NOW - 1), ok(a_call()), now=NOW).finished_at == NOW - 1


def test_end_call_tells_no_start_of_a_call_that_never_began() -> None:
    """It was let in, and denied before its body was entered."""
    denial = ToolDenied(call_id="0.0", tool_name="tool0", reason=DenialReason.DEADLINE, details="late")
    over = end_call(running(a_write()), denial, now=NOW + 2)
    assert (over.outcome, over.started_at, over.worker, over.finished_at) == (denial, None, None, NOW + 2)


def test_merge_puts_changed_calls_in_place() -> None:
    """Order stays; new calls come behind."""
    one, two = a_call(0), a_call(1)
    after = merge((one, two), (pending(one), a_call(2)))
    assert [(call.position, call.status) for call in after] == [
        (0, CallStatus.PENDING),
        (1, CallStatus.PLANNED),
        (2, CallStatus.PLANNED),
    ]


def test_reads_start_their_wave_when_sent() -> None:
    """One ``wave.started`` names all calls of the wave."""
    calls = (a_call(0), a_call(1))
    events = call_events(calls, tuple(map(pending, calls)))
    assert [event.type for event in events] == ["wave.started"]
    assert events[0].data == {"step": 0, "wave": 0, "calls": ["0.0", "0.1"]}


def test_wave_starts_with_its_first_call() -> None:
    """Reads that may not run side by side are sent one after the other, and the later ones start no second wave."""
    one, two = a_call(0), a_call(1)
    assert told((one, two), (pending(one),)) == ["wave.started 0"]
    assert told((ended(one), two), (pending(two),)) == []


def test_write_starts_its_wave_when_it_runs() -> None:
    """A write that waits in a chain has not begun."""
    call = a_write()
    assert told((call,), (pending(call),)) == []
    assert told((pending(call),), (running(call),)) == ["wave.started 0"]


def test_write_that_runs_again_starts_no_second_wave() -> None:
    """A crash between two attempts shows in no wave event."""
    back = replace(running(a_write()), status=CallStatus.PENDING, attempt=2)
    assert told((running(a_write()),), (back,)) == []
    assert told((back,), (running(back),)) == []


def test_wave_completes_with_its_last_call() -> None:
    """Each call is told once; the wave when all are."""
    calls = (pending(a_call(0)), pending(a_call(1)))
    assert told(calls, (ended(calls[1]),)) == ["tool.completed 0.1"]
    half = (calls[0], ended(calls[1]))
    assert told(half, (ended(calls[0]),)) == ["tool.completed 0.0", "wave.completed 0"]


def test_call_that_ends_without_running_opens_and_closes_its_wave() -> None:
    """A denied call's wave is told whole."""
    denied = ToolDenied(call_id="0.0", tool_name="tool0", reason=DenialReason.NOT_RUN, details="x")
    whole = ["wave.started 0", "tool.completed 0.0", "wave.completed 0"]
    assert told((a_write(),), (ended(a_write(), denied, started_at=None),)) == whole


def test_waves_are_told_one_after_the_other() -> None:
    """However calls are given, events are in program order."""
    calls = (a_write(0), a_write(1))
    events = told(calls, (ended(calls[1]), ended(calls[0])))
    assert [event.split()[1] for event in events] == ["0", "0.0", "0", "1", "0.1", "1"]


def test_calls_that_ended_before_are_not_told_again() -> None:
    """Collecting an ended call changes its row, and tells nothing."""
    call = ended(a_call())
    assert told((call,), (replace(call, collected=True),)) == []


def test_completed_event_says_what_became_of_the_call() -> None:
    """``tool.completed`` carries class, error flag and time."""
    call = pending(a_call())
    (event, _) = call_events((call,), (ended(call, failed(call)),))
    assert event.data == {
        "call_id": "0.0",
        "tool": "tool0",
        "outcome": "ToolFailure",
        "is_error": True,
        "elapsed_ms": 0.0,
    }


def test_decide_puts_the_callers_events_behind_those_of_the_calls() -> None:
    """A step's end follows what ended in it."""
    call = pending(a_call())
    decision = decide(
        snapshot(a_turn(), call),
        "result",
        calls=(ended(call),),
        last=(EventDraft(type="step.completed", data={}),),
    )
    assert event_types(decision) == ["tool.completed", "wave.completed", "step.completed"]
    assert decision.result == "result"


def test_decide_stores_each_artifact_once() -> None:
    """The row of an artifact comes with the commit that ends its call, and with no later one."""
    call = pending(a_call())
    reference = ToolArtifactReference(
        call_id="0.0",
        tool_name="tool0",
        artifact_id="art_1",
        summary="long",
        url="memory://1",
        size_bytes=9,
        elapsed_ms=1.0,
    )
    over = ended(call, reference)
    (artifact,) = decide(snapshot(a_turn(), call), None, calls=(over,)).artifacts
    assert (artifact.id, artifact.turn_id, artifact.call_id, artifact.size_bytes) == ("art_1", "turn", "0.0", 9)
    assert (artifact.tenant, artifact.session_id, artifact.url) == ("tenant", "session", "memory://1")
    again = decide(snapshot(a_turn(), over), None, calls=(replace(over, collected=True),))
    assert again.artifacts == ()
