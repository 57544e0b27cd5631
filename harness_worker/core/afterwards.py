"""The state that a decision leaves, so that a visit can continue from its own commit without reading it again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.lifecycle import merge
from harness_worker.core.records import CallStatus, in_order


def after(before: Snapshot, decision: Decision[Any]) -> Snapshot:
    """The snapshot as it would be read right after the decision is committed."""
    seq, count = before.turn.last_seq + len(decision.events), before.turn.message_count + len(decision.messages)
    turn = replace(decision.turn or before.turn, last_seq=seq, message_count=count)
    calls = in_order(merge(before.calls, decision.calls))
    shown = tuple(call for call in calls if not call.collected or call.step == turn.step - 1)
    return replace(before, turn=turn, calls=shown, children=(*before.children, *decision.children))


def needs_beats(left: Snapshot) -> bool:
    """Whether a call's lease has expired unless a heartbeat prolonged it, which the turn's row does not show."""
    running = (call.lease_until for call in left.calls if call.status is CallStatus.RUNNING)
    return any(lease is not None and lease <= left.now for lease in running)
