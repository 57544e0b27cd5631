"""The small values of the core: budgets, usage, outcomes as records, deadlines, clean text."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_worker.core.budget import DEFAULT_LIMITS, BudgetLimits, Usage, agent_limits
from harness_worker.core.canonical import canonical, compact
from harness_worker.core.outcomes import (
    DenialReason,
    ToolArtifactReference,
    ToolDenied,
    ToolExecutionResult,
    ToolFailure,
    ToolOutcome,
    ToolTimeout,
    content_of,
    elapsed_ms_of,
    from_record,
    is_error,
    to_record,
)
from harness_worker.core.run_context import DeadlineToken
from harness_worker.core.text import clean_json

OUTCOMES: list[tuple[ToolOutcome, str, bool, float]] = [
    (ToolExecutionResult(call_id="0.0", tool_name="t", output="hi", elapsed_ms=2.0), "hi", False, 2.0),
    (
        ToolTimeout(call_id="0.0", tool_name="t", deadline_s=1.5, elapsed_ms=3.0),
        "timeout: t did not finish within 1.5 s",
        True,
        3.0,
    ),
    (ToolFailure(call_id="0.0", tool_name="t", error="boom", elapsed_ms=4.0), "boom", True, 4.0),
    (
        ToolDenied(call_id="0.0", tool_name="t", reason=DenialReason.BUDGET, details="used up"),
        "denied: budget: used up",
        True,
        0.0,
    ),
    (
        ToolArtifactReference(
            call_id="0.0",
            tool_name="t",
            artifact_id="art_1",
            summary="long",
            url="memory://1",
            size_bytes=9,
            elapsed_ms=5.0,
        ),
        "art_1: long",
        False,
        5.0,
    ),
]


@pytest.mark.parametrize(("outcome", "content", "error", "elapsed_ms"), OUTCOMES, ids=lambda v: type(v).__name__)
def test_outcome_survives_its_record(outcome: ToolOutcome, content: str, error: bool, elapsed_ms: float) -> None:
    """Each class says what the model reads, whether it is an error and how long it took, before and after storage."""
    record = to_record(outcome)
    assert from_record(record) == outcome
    assert (record["kind"], record["content"], record["is_error"]) == (type(outcome).__name__, content, error)
    assert (content_of(outcome), is_error(outcome), elapsed_ms_of(outcome)) == (content, error, elapsed_ms)


@pytest.mark.parametrize("outcome", [outcome for outcome, *_ in OUTCOMES], ids=lambda v: type(v).__name__)
def test_outcome_cannot_be_changed(outcome: ToolOutcome) -> None:
    """Its fields are set once, and it takes no others."""
    for name in (*(field.name for field in fields(outcome)), "note"):
        with pytest.raises((FrozenInstanceError, TypeError)):
            setattr(outcome, name, "changed")


def test_record_of_no_outcome_is_refused() -> None:
    """A record of a kind that does not exist is a fault, not a guess."""
    with pytest.raises(KeyError):
        from_record({"kind": "ToolSomething"})


def test_budget_is_clamped_to_the_cap() -> None:
    """A wish is granted up to the agent's limit; without a limit it is granted; the unknown and the absent are not."""
    cap = BudgetLimits(max_steps=4, max_dollars=0.5)
    wish = {"max_steps": 9, "max_tokens": 100, "max_dollars": 0.2, "timeout_s": None, "nonsense": 1}
    clamped = cap.clamped(wish)
    assert clamped == BudgetLimits(max_steps=4, max_tokens=100, max_dollars=0.2)
    assert cap.clamped(None) == cap


def test_agents_missing_limits_are_the_defaults() -> None:
    """A missing or null key has the global default."""
    assert agent_limits({"max_steps": 2, "max_dollars": None}) == BudgetLimits(max_steps=2)
    assert agent_limits(None) == DEFAULT_LIMITS


_counts = st.integers(min_value=0, max_value=1_000_000)


@given(one=st.builds(Usage, input_tokens=_counts, steps=_counts), two=st.builds(Usage, output_tokens=_counts))
def test_usage_adds_field_by_field(one: Usage, two: Usage) -> None:
    """Nothing is lost and nothing counted twice."""
    total = one.plus(two)
    assert total == two.plus(one)
    assert total.tokens == one.tokens + two.tokens
    assert total.steps == one.steps


def test_fields_are_read_by_name() -> None:
    """A name that is no field, such as that of a method, is a ``KeyError``."""
    assert dict(Usage(steps=3)) == {field.name: 0 for field in fields(Usage)} | {"steps": 3}
    with pytest.raises(KeyError, match="plus"):
        Usage()["plus"]


def test_names_of_fields_are_iterated_over_as_those_of_a_dict() -> None:
    """``in`` asks for a name, too."""
    assert list(Usage()) == [field.name for field in fields(Usage)]
    assert "steps" in Usage()
    assert "plus" not in Usage()


def test_deadline_never_has_less_than_nothing_left() -> None:
    """A tool that asks late is told zero, and that it has expired."""
    now = [10.0]
    token = DeadlineToken(at_s=12.0, clock=lambda: now[0])
    assert (token.remaining_s(), token.expired) == (2.0, False)
    now[0] = 13.0
    assert (token.remaining_s(), token.expired) == (0.0, True)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\x00b", "a\ufffdb"),
        ("\ud800", "\ufffd"),
        ([1, "\x00", None], [1, "\ufffd", None]),
        ({"\x00": {"k": "\ud83d\ude00"}}, {"\ufffd": {"k": "😀"}}),
        (True, True),
    ],
)
def test_json_is_cleaned_wherever_text_is(value: Any, expected: Any) -> None:  # noqa: ANN401 - any JSON
    """Keys too; what no database holds is replaced, what was one character in two halves is put together."""
    assert clean_json(value) == expected


def test_json_is_written_compact_or_canonical() -> None:
    """Compact keeps the order of keys, canonical sorts them; neither escapes letters."""
    assert compact({"b": 1, "a": "ä"}) == '{"b":1,"a":"ä"}'
    assert canonical({"b": 1, "a": "ä"}) == '{"a":"ä","b":1}'
