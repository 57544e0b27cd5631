"""The contract of ``TurnStore`` on values: what a rule decides is read back unchanged, on SQLite and on Postgres."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness_worker.core.budget import BudgetLimits, Usage
from harness_worker.core.decisions import Decision
from harness_worker.core.outcomes import (
    DenialReason,
    ToolArtifactReference,
    ToolDenied,
    ToolExecutionResult,
    ToolFailure,
    ToolTimeout,
)
from harness_worker.core.recall import Recall
from harness_worker.core.records import CallStatus, EventDraft, Message
from harness_worker.core.registration.delegation import Delegation
from harness_worker.core.registration.effects import Effect
from harness_worker.wire import Approval, StopReason, TurnStatus
from tests.contract.store_world import World, new_call

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=200)
SHORT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20)
TIME = st.none() | st.floats(1e9, 4e9) | st.sampled_from([1_763_766_000.123456, 1_763_766_000.000001])
BIG = st.integers(0, 2**63 - 1)
SMALL = st.integers(0, 2**31 - 1)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
JSON_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**200), 2**200) | NUMBER | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
OBJECT = st.dictionaries(st.text(max_size=8), JSON_VALUE, max_size=3)
COMMON = {"call_id": st.just("0.0"), "tool_name": SHORT}
OUTCOME = st.one_of(
    st.builds(ToolExecutionResult, **COMMON, output=TEXT, elapsed_ms=NUMBER, was_coerced=st.booleans()),
    st.builds(ToolTimeout, **COMMON, deadline_s=NUMBER, elapsed_ms=NUMBER, retryable=st.booleans()),
    st.builds(ToolFailure, **COMMON, error=TEXT, retryable=st.booleans(), elapsed_ms=NUMBER),
    st.builds(ToolDenied, **COMMON, reason=st.sampled_from(DenialReason), details=TEXT),
    st.builds(
        ToolArtifactReference,
        **COMMON,
        artifact_id=SHORT,
        summary=TEXT,
        url=SHORT,
        size_bytes=BIG,
        elapsed_ms=NUMBER,
    ),
)
APPROVAL = st.builds(
    Approval,
    expires_at=TIME,
    decision=st.sampled_from(["approve", "deny"]) | st.none(),
    reason=st.none() | TEXT,
    arguments=st.none() | OBJECT,
    is_resolved=st.booleans(),
    timeout_s=st.none() | NUMBER,
)
TURN_CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(TurnStatus),
        "stop_reason": st.none() | st.sampled_from(StopReason),
        "metadata": st.dictionaries(TEXT, TEXT, max_size=3),
        "parallel": st.none() | st.booleans(),
        "system_prompt_override": st.none() | TEXT,
        "traceparent": st.none() | st.just(f"00-{'a' * 32}-{'b' * 16}-01"),
        "output_text": TEXT,
        "error": st.none() | st.fixed_dictionaries({"code": TEXT, "message": TEXT}),
        "used": st.builds(Usage, input_tokens=st.integers(0, 2**70), dollars=NUMBER, steps=SMALL),
        "delegated": st.builds(Usage, output_tokens=st.integers(0, 2**70), dollars=NUMBER),
        "recall": st.builds(
            Recall,
            done=st.dictionaries(SHORT, SHORT, max_size=3),
            blocked=st.dictionaries(SHORT, SHORT, max_size=3),
            repeats=SMALL,
            warned=st.lists(SHORT, max_size=3).map(tuple),
        ),
        "step": SMALL,
        "cancel_requested": st.booleans(),
        "fence": BIG,
        "owner": st.none() | SHORT,
        "lease_until": TIME,
        "visit_deadline": TIME,
        "parked_at": TIME,
        "wake_at": TIME,
        "wakes": BIG,
        "looks": SMALL,
        "started_at": TIME,
        "finished_at": TIME,
    },
)
CALL_CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "tool": TEXT,
        "effect": st.none() | st.sampled_from(Effect),
        "arguments": OBJECT,
        "approval": st.none() | APPROVAL,
        "status": st.sampled_from(CallStatus),
        "attempt": SMALL,
        "lease_until": TIME,
        "runner": st.none() | SHORT,
        "deadline_at": TIME,
        "outcome": st.none() | OUTCOME,
        "worker": st.none() | SHORT,
        "retry_safe": st.booleans(),
        "idempotent": st.booleans(),
        "hooked": st.booleans(),
        "delegation": st.none() | st.builds(Delegation, agent=TEXT, budget=st.builds(BudgetLimits)),
        "timeout_s": NUMBER,
        "started_at": TIME,
        "finished_at": TIME,
    },
)
A_FEW = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@A_FEW
@given(first=TURN_CHANGES, second=TURN_CHANGES)
def test_transact_keeps_every_changed_field_of_a_turn(world: World, first: dict[str, Any], second: dict[str, Any]):
    """Any fields change to any values, twice: the turn is read back as decided, and all others are as before."""
    turn_id = world.queued()
    expected = replace(replace(world.turn(turn_id), **first), **second)
    world.change(turn_id, **first)
    world.change(turn_id, **second)
    assert world.turn(turn_id) == expected
    assert world.store.transact(turn_id, lambda s: Decision(result=s.turn)) == expected


@A_FEW
@given(changes=st.lists(CALL_CHANGES, min_size=1, max_size=4))
def test_transact_keeps_every_changed_field_of_calls(world: World, changes: list[dict[str, Any]]):
    """Any fields of several calls change at once, with outcomes of all five kinds."""
    turn_id = world.queued()
    world.put(*(new_call(turn_id, position) for position in range(len(changes))))
    expected = tuple(replace(new_call(turn_id, position), **change) for position, change in enumerate(changes))
    world.put(*expected)
    assert world.calls(turn_id) == expected
    assert world.store.transact(turn_id, lambda s: Decision(result=s.calls)) == expected


@A_FEW
@given(changes=CALL_CHANGES, content=TEXT | st.lists(OBJECT, max_size=3), data=OBJECT)
def test_transact_keeps_new_rows(world: World, changes: dict[str, Any], content: object, data: dict[str, Any]):
    """New calls, messages and events come back with whatever text, blocks and JSON they contain."""
    turn_id = world.queued()
    call = new_call(turn_id, **changes)
    message = Message(role="assistant", content=content)
    drafts = (EventDraft(type="model.completed", data=data),)
    world.store.transact(turn_id, lambda _: Decision(result=None, calls=(call,), messages=(message,), events=drafts))
    assert world.calls(turn_id) == (call,)
    assert world.store.history(turn_id)[1].content == content
    assert world.sink.sent[-1].data == data
