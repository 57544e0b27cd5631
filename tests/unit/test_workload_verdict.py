from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from harness_worker.workloads.base import (
    JournalRow,
    Observation,
    ObservedState,
    RecordedCall,
    RecordedEffect,
    ReplayOutcome,
    WorkloadTask,
)
from harness_worker.workloads.verdict import FinishedTurn, Verdict, judge

TASK = WorkloadTask(
    id="t1",
    input="do it",
    calls=(
        RecordedCall(tool="look", arguments={"a": 1}, is_read=True),
        RecordedCall(tool="put", arguments={"b": 2}, is_read=False),
        RecordedCall(tool="put", arguments={"b": 3}, is_read=False),
    ),
)
EXPECTED = ReplayOutcome(
    observations=tuple(Observation(content=f"saw {n}", is_error=False) for n in range(3)),
    effects=(RecordedEffect.of("put", {"b": 2}), RecordedEffect.of("put", {"b": 3})),
    final_state="hash",
)


def _calls() -> list[dict[str, Any]]:
    return [
        {
            "call_id": f"0.{n}",
            "tool_use_id": f"toolu_{n}",
            "tool": call.tool,
            "arguments": dict(call.arguments),
            "content": f"saw {n}",
            "is_error": False,
            "step": 0,
            "wave": n,
            "attempt": 1,
        }
        for n, call in enumerate(TASK.calls)
    ]


def _messages(calls: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    uses = [{"type": "tool_use", "id": call["tool_use_id"]} for call in calls]
    results = [
        {"type": "tool_result", "tool_use_id": call["tool_use_id"], "content": call["content"]} for call in calls
    ]
    return [
        {"role": "user", "content": "do it"},
        {"role": "assistant", "content": uses},
        {"role": "user", "content": results},
        {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
    ]


def _turn(calls: list[dict[str, Any]] | None = None, messages: list[dict[str, Any]] | None = None) -> FinishedTurn:
    calls = _calls() if calls is None else calls
    return FinishedTurn(
        id="turn",
        status="completed",
        stop_reason="end_turn",
        error=None,
        calls=tuple(calls),
        messages=tuple(_messages(_calls()) if messages is None else messages),
    )


def _state(*effects: RecordedEffect, final_state: str = "hash") -> ObservedState:
    rows = (
        JournalRow(
            seq=n,
            turn_id="turn",
            call_id=f"0.{n}",
            effect=effect,
            worker="w",
            attempt=1,
            idempotency_key=str(n),
            observation="",
        )
        for n, effect in enumerate(effects)
    )
    return ObservedState(journal=tuple(rows), final_state=final_state)


FOUND = _state(*EXPECTED.effects)


def _counts(verdict: Verdict) -> tuple[int, int, int]:
    return verdict.missing, verdict.extra, verdict.out_of_order


def test_verdict_passes_what_equals_the_replay():
    """The same calls, results, effects and state pass, and the waves are counted."""
    verdict = judge(TASK, _turn(), EXPECTED, FOUND)
    assert (verdict.why, verdict.passed, verdict.waves, _counts(verdict)) == ((), True, 3, (0, 0, 0))


def test_verdict_sees_a_write_done_twice():
    """A second execution is one effect extra, though the final state be the same."""
    first, second = EXPECTED.effects
    verdict = judge(TASK, _turn(), EXPECTED, _state(first, first, second))
    assert not verdict.passed
    assert _counts(verdict) == (0, 1, 0)


def test_verdict_sees_a_lost_write():
    """A write that was never done is missing."""
    verdict = judge(TASK, _turn(), EXPECTED, _state(EXPECTED.effects[1]))
    assert not verdict.passed
    assert _counts(verdict) == (1, 0, 0)


def test_verdict_sees_swapped_writes():
    """Two effects in the wrong order are two out of order, none missing."""
    verdict = judge(TASK, _turn(), EXPECTED, _state(*reversed(EXPECTED.effects)))
    assert not verdict.passed
    assert _counts(verdict) == (0, 0, 2)


def test_verdict_sees_another_final_state():
    """The state is compared even if the journal is right."""
    assert not judge(TASK, _turn(), EXPECTED, _state(*EXPECTED.effects, final_state="other")).passed


@pytest.mark.parametrize(
    ("content", "passes"), [("w" * 200, True), ("w" * 199, False), ("w" * 199 + "v", False), ("w" * 201, False)]
)
def test_verdict_holds_an_artifact_to_its_beginning(content: str, passes: bool):
    """Of an output that was set aside the model reads the first 200 characters, after the artifact's id."""
    calls, whole = _calls(), Observation(content="w" * 20_000, is_error=False)
    calls[0] |= {"outcome": "ToolArtifactReference", "content": f"art_0f: {content}"}
    expected = replace(EXPECTED, observations=(whole, *EXPECTED.observations[1:]))
    assert judge(TASK, _turn(calls, _messages(calls)), expected, FOUND).passed is passes


def _other_content(calls: list[dict[str, Any]]) -> None:
    calls[0]["content"] = "saw something else"


def _became_error(calls: list[dict[str, Any]]) -> None:
    calls[1]["is_error"] = True


def _other_arguments(calls: list[dict[str, Any]]) -> None:
    calls[0]["arguments"] = {"a": 2}


def _lost_call(calls: list[dict[str, Any]]) -> None:
    calls.pop()


@pytest.mark.parametrize("spoil", [_other_content, _became_error, _other_arguments, _lost_call])
def test_verdict_sees_a_call_that_differs(spoil: Callable[[list[dict[str, Any]]], None]):
    """Each call's tool, arguments, content and error flag are compared, and their number."""
    calls = _calls()
    spoil(calls)
    assert not judge(TASK, _turn(calls, _messages(calls)), EXPECTED, FOUND).passed


def _second_result(messages: list[dict[str, Any]]) -> None:
    messages[2]["content"].append(messages[2]["content"][0])


def _no_result(messages: list[dict[str, Any]]) -> None:
    messages[2]["content"].pop()


def _other_result(messages: list[dict[str, Any]]) -> None:
    messages[2]["content"][0]["content"] = "another text"


@pytest.mark.parametrize("spoil", [_second_result, _no_result, _other_result])
def test_verdict_sees_results_that_are_not_one_a_call(spoil: Callable[[list[dict[str, Any]]], None]):
    """Each call has exactly one result message, with the call's content."""
    messages = _messages(_calls())
    spoil(messages)
    assert not judge(TASK, _turn(messages=messages), EXPECTED, FOUND).passed


@pytest.mark.parametrize("status", ["failed", "incomplete", "cancelled", "running"])
def test_verdict_sees_a_turn_that_did_not_complete(status: str):
    """Only a completed turn passes."""
    assert not judge(TASK, replace(_turn(), status=status), EXPECTED, FOUND).passed
