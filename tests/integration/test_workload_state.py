from __future__ import annotations

import threading

import pytest

from harness_worker.workloads.base import Observation, RecordedEffect
from harness_worker.workloads.state import Overlay, WorkloadState, WriteCall, Written


def _call(key: str, turn_id: str = "turn") -> WriteCall:
    return WriteCall(
        turn_id=turn_id,
        call_id=key,
        idempotency_key=key,
        attempt=1,
        worker="host/1",
        effect=RecordedEffect.of("put", {"k": key}),
    )


def _written(content: str, *, is_error: bool = False, **records: str | None) -> Written:
    changed = {("things", key): record for key, record in records.items()}
    return Written(observation=Observation(content=content, is_error=is_error), changed=changed)


def test_state_keeps_turns_apart(state: WorkloadState):
    """A turn sees its own changes in order, each over the ones before, and nobody else's."""
    state.once(_call("1"), lambda _: _written("ok", a="1", b="1"))
    state.once(_call("2"), lambda _: _written("ok", a="2", b=None))
    state.once(_call("3", "other"), lambda _: _written("ok", a="3"))
    assert state.overlay("turn") == {("things", "a"): "2", ("things", "b"): None}
    assert state.overlay("other") == {("things", "a"): "3"}


def test_state_keeps_the_journals_of_turns_apart(state: WorkloadState):
    """A turn's journal has its own effects alone."""
    for key, turn_id in (("1", "turn"), ("2", "other"), ("3", "turn")):
        state.once(_call(key, turn_id), lambda _: _written("ok", a="1"))
    assert [[row.call_id for row in state.journal(each)] for each in ("turn", "other")] == [["1", "3"], ["2"]]


def test_state_keeps_collections_apart(state: WorkloadState):
    """Records of two collections may have the same key; a change of one leaves the other."""
    state.once(_call("1"), lambda _: _written("ok", a="1"))
    done = Observation(content="ok", is_error=False)
    state.once(_call("2"), lambda _: Written(observation=done, changed={("others", "a"): "2"}))
    assert state.overlay("turn") == {("things", "a"): "1", ("others", "a"): "2"}


def test_state_shows_a_write_what_the_turn_changed_before(state: WorkloadState):
    """A write sees the state with all earlier writes applied."""
    seen: list[Overlay] = []
    state.once(_call("1"), lambda _: _written("ok", a="1"))
    state.once(_call("2"), lambda overlay: (seen.append(overlay), _written("ok"))[1])
    assert seen == [{("things", "a"): "1"}]


def test_state_runs_a_key_once(state: WorkloadState):
    """A second execution returns the first one's answer, changes nothing, and leaves no journal row."""
    first = state.once(_call("1"), lambda _: _written("first", a="1"))
    second = state.once(_call("1"), lambda _: _written("second", a="2"))
    assert (first.content, second.content) == ("first", "first")
    assert state.overlay("turn") == {("things", "a"): "1"}
    assert [row.observation for row in state.journal("turn")] == ["first"]


def test_state_remembers_the_answer_to_each_key(state: WorkloadState):
    """A later write changes nothing of an earlier one's answer."""
    for key in ("1", "2"):
        state.once(_call(key), lambda _, key=key: _written(f"answer {key}", is_error=key == "2"))
    again = [state.once(_call(key), lambda _: _written("again")) for key in ("1", "2")]
    assert [(each.content, each.is_error) for each in again] == [("answer 1", False), ("answer 2", True)]


def test_state_runs_a_key_once_among_rivals(state: WorkloadState):
    """Of eight simultaneous executions one acts, and all return its answer."""
    start, runs, answers = threading.Barrier(8), list[int](), list[str]()

    def rival(number: int) -> None:
        start.wait()
        content = state.once(
            _call("1"), lambda _: (runs.append(number), _written(str(number), a=str(number)))[1]
        ).content
        answers.append(content)

    threads = [threading.Thread(target=rival, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(runs) == 1
    assert answers == [str(runs[0])] * 8
    assert len(state.journal("turn")) == 1


def test_state_remembers_a_failed_write_without_calling_it_an_effect(state: WorkloadState):
    """A write that raised and changed nothing has a receipt, but no journal row."""
    state.once(_call("1"), lambda _: _written("Error: no", is_error=True))
    again = state.once(_call("1"), lambda _: _written("now it works", a="1"))
    assert (again.content, again.is_error) == ("Error: no", True)
    assert state.journal("turn") == ()
    assert state.overlay("turn") == {}


def test_state_counts_a_failed_write_that_changed_something(state: WorkloadState):
    """Half a change is an effect too."""
    state.once(_call("1"), lambda _: _written("Error: half", is_error=True, a="1"))
    assert [row.effect for row in state.journal("turn")] == [RecordedEffect.of("put", {"k": "1"})]


def test_state_forgets_a_write_that_was_broken_off(state: WorkloadState):
    """An exception of the write itself leaves neither receipt nor change, so the next attempt acts."""

    def broken(_overlay: Overlay) -> Written:
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        state.once(_call("1"), broken)
    assert state.once(_call("1"), lambda _: _written("second", a="1")).content == "second"
    assert len(state.journal("turn")) == 1


def test_state_is_created_by_many_at_once(state: WorkloadState):
    """It is no error if the tables exist, or are being created by another process."""
    errors: list[Exception] = []

    def create() -> None:
        try:
            state.create()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shall see it
            errors.append(error)

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
