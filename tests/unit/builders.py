"""Short ways to build turns, calls, visits and snapshots; fields that a test does not name have ordinary values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harness_worker.core.budget import BudgetLimits, Usage
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.delegating import children_of
from harness_worker.core.outcomes import DenialReason, ToolDenied, ToolExecutionResult, ToolFailure, ToolOutcome
from harness_worker.core.prompting.artifact_reading import reader
from harness_worker.core.prompting.prompt import Prompt
from harness_worker.core.records import Call, CallStatus, Turn, TurnPreparation
from harness_worker.core.registration.delegation import Delegation
from harness_worker.core.registration.effects import Effect
from harness_worker.core.reply_commit import Said
from harness_worker.core.timing import Timing
from harness_worker.core.visits import Visit
from harness_worker.wire import TurnStatus

NOW = 1_000.0
DEADLINE = 1_060.0
TIMING = Timing(lease_ttl_s=6.0, visit_s=70.0, look_s=2.0, hard_s=1.5, grace_s=2.0, attempt_cap=3, approval_s=86_400.0)
OWNER = "visit-1"
RUNNER = "host/1"
HELPER = Delegation(agent="helper", budget=BudgetLimits(timeout_s=600.0, max_tokens=None, max_dollars=9.0))
"""Whom :func:`a_question` is put to."""

READER = reader(lambda _id, _ctx: None, threshold_chars=1_000)
"""The reader of artifacts, of which there are none."""

CAPS: dict[str, Any] = {
    "max_steps": 6,
    "max_tool_calls": 6,
    "max_reflections": 4,
    "max_tokens": None,
    "max_dollars": 1.0,
    "timeout_s": 60.0,
}
"""The budget of an agent that sets no limits, as the gateway reads it."""


def a_turn(**changes: Any) -> Turn:  # noqa: ANN401 - any field's value
    """A queued turn, with a minute left until its deadline."""
    turn = Turn(
        id="turn",
        tenant="tenant",
        session_id="session",
        agent="agent",
        status=TurnStatus.QUEUED,
        input="hello",
        priority="interactive",
        budget=BudgetLimits(),
        deadline_at=DEADLINE,
        created_at=NOW,
        wake_at=NOW,
        last_seq=1,
        message_count=1,
    )
    return replace(turn, **changes)


def a_held_turn(**changes: Any) -> Turn:  # noqa: ANN401 - any field's value
    """A turn that :data:`OWNER` drives under fence 1."""
    held = a_turn(
        status=TurnStatus.RUNNING,
        owner=OWNER,
        fence=1,
        lease_until=NOW + TIMING.lease_ttl_s,
        visit_deadline=NOW + TIMING.visit_s,
        started_at=NOW,
    )
    return replace(held, **changes)


def a_call(position: int = 0, **changes: Any) -> Call:  # noqa: ANN401 - any field's value
    """A planned read, of step 0 by default; its tool is named after its position."""
    step = changes.get("step", 0)
    call = Call(
        turn_id="turn",
        step=step,
        position=position,
        tool_use_id=f"use-{position}",
        tool=f"tool{position}",
        effect=Effect.READ_ONLY,
        arguments={},
        wave=0,
        retry_safe=True,
        timeout_s=10.0,
        queue="tools",
        idempotency_key=f"turn:{step}.{position}",
    )
    return replace(call, **changes)


def a_write(position: int = 0, **changes: Any) -> Call:  # noqa: ANN401 - any field's value
    """A planned write, of step 0 by default: alone in its wave, and not to be repeated after a crash."""
    return a_call(position, **{"effect": Effect.LOCAL_WRITE, "retry_safe": False, "wave": position, **changes})


def a_question(position: int = 0, **changes: Any) -> Call:  # noqa: ANN401 - any field's value
    """A planned call of the agent ``helper``."""
    given = {"tool": "helper", "arguments": {"input": f"question {position}"}, "delegation": HELPER, "wave": 0}
    return a_write(position, **{**given, "timeout_s": 60.0, **changes})


def asked(position: int = 0, **changes: Any) -> Call:  # noqa: ANN401 - any field's value
    """That call, once it was sent."""
    return a_question(position, **{"status": CallStatus.RUNNING, "deadline_at": DEADLINE, **changes})


def a_child(position: int = 0, **changes: Any) -> Turn:  # noqa: ANN401 - any field's value
    """The running turn of the call at that position."""
    child = children_of(a_held_turn(), [a_question(position)], now=NOW)[0]
    return replace(child, **{"status": TurnStatus.RUNNING, "started_at": NOW + 1.0, **changes})


def parked(position: int = 0) -> Turn:
    """A child that has waited for a person since NOW + 10."""
    return a_child(position, status=TurnStatus.REQUIRES_ACTION, parked_at=NOW + 10.0)


def pending(call: Call, **changes: Any) -> Call:  # noqa: ANN401 - any field's value
    """The call after it was sent."""
    return replace(call, **{"status": CallStatus.PENDING, "deadline_at": DEADLINE, **changes})


def running(call: Call, **changes: Any) -> Call:  # noqa: ANN401 - any field's value
    """The call as it runs in :data:`RUNNER` under a live lease."""
    started = {
        "status": CallStatus.RUNNING,
        "deadline_at": NOW + call.timeout_s,
        "lease_until": NOW + TIMING.lease_ttl_s,
        "runner": RUNNER,
        "worker": RUNNER,
        "started_at": NOW,
    }
    return replace(call, **{**started, **changes})


def ended(call: Call, outcome: ToolOutcome | None = None, **changes: Any) -> Call:  # noqa: ANN401 - any field's value
    """The call after it ended: with ``outcome``, or else with success."""
    done = {"status": CallStatus.ENDED, "outcome": outcome or ok(call), "started_at": NOW, "finished_at": NOW}
    return replace(call, **{**done, **changes})


def ok(call: Call, output: str = "done") -> ToolExecutionResult:
    """The outcome of a call that returned."""
    return ToolExecutionResult(call_id=call.call_id, tool_name=call.tool, output=output, elapsed_ms=1.0)


def failed(call: Call, error: str = "boom") -> ToolFailure:
    """The outcome of a call that raised."""
    return ToolFailure(call_id=call.call_id, tool_name=call.tool, error=error)


def denied(call: Call) -> Call:
    """The planned call with an outcome already: it was denied, and will not run."""
    outcome = ToolDenied(call_id=call.call_id, tool_name=call.tool, reason=DenialReason.VALIDATION, details="bad")
    return replace(call, outcome=outcome)


def snapshot(turn: Turn, *calls: Call, now: float = NOW) -> Snapshot:
    """The turn and its calls as read under the lock at ``now``."""
    return Snapshot(now=now, turn=turn, calls=calls)


def a_visit(turn: Turn, *calls: Call, now: float = NOW) -> Visit:
    """The visit of :data:`OWNER`, which has claimed the turn as given."""
    return Visit(turn=turn, calls=calls, owner=OWNER, now=now, timing=TIMING)


PROMPT = Prompt(
    system="",
    tools=(),
    messages=(),
    preparation=TurnPreparation(context=(), prefix_hash=""),
    render_hash="",
    is_cache_break=False,
)
"""The prompt of a model call that sends nothing."""


def said(*calls: Call, text: str = "", stop_reason: str = "tool_use", usage: Usage | None = None) -> Said:
    """A model's reply that asks for ``calls``."""
    blocks = [{"type": "text", "text": text}] if text else []
    uses = [{"type": "tool_use", "id": c.tool_use_id, "name": c.tool, "input": dict(c.arguments)} for c in calls]
    return Said(
        content=(*blocks, *uses),
        text=text,
        stop_reason=stop_reason,
        usage=usage or Usage(output_tokens=1),
        calls=calls,
        prompt=PROMPT,
    )


def call_of(decision: Decision[Any], position: int, calls: Sequence[Call] = ()) -> Call:
    """The call at that position, as the decision leaves it."""
    found = {call.position: call for call in (*calls, *decision.calls)}
    return found[position]


def event_types(decision: Decision[Any]) -> list[str]:
    """The types of the decision's events, in order."""
    return [event.type for event in decision.events]
