"""The context by which a tool is called in a test of its own."""

from __future__ import annotations

import pytest

from harness_worker import RunContext


def test_context_for_tests_has_what_the_test_says() -> None:
    """Every other field has a value, and the deadline says what it is told to."""
    ctx = RunContext.for_tests(remaining_s=0.5, idempotency_key="k1", fence=7)
    assert (ctx.idempotency_key, ctx.fence, ctx.attempt) == ("k1", 7, 1)
    assert ctx.deadline.remaining_s() == 0.5
    assert not ctx.deadline.expired


def test_context_for_tests_has_a_minute_unless_told() -> None:
    """A deadline can be one that is over."""
    assert RunContext.for_tests().deadline.remaining_s() == 60.0
    assert RunContext.for_tests(remaining_s=0).deadline.expired


def test_context_for_tests_refuses_a_field_that_does_not_exist() -> None:
    """A typing error in a test is told."""
    with pytest.raises(TypeError, match="idempotencykey"):
        RunContext.for_tests(idempotencykey="k1")
