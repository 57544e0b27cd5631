"""Whole turns, played on any store."""

from __future__ import annotations

from functools import partial
from typing import Any

from harness_worker.core.collect import collect
from harness_worker.core.collect_reads import ReadReport
from harness_worker.core.doubt import unknown
from harness_worker.core.opening import Opened, open_visit
from harness_worker.core.outcomes import ToolArtifactReference, ToolOutcome
from harness_worker.core.records import Call
from harness_worker.core.reply_commit import give_up, plan
from harness_worker.core.visits import Visit, fenced
from harness_worker.core.writes import hand_back, hand_in, late, start_write
from harness_worker.ports import HeldTurn, RunningCall, TurnStore, ignore
from harness_worker.wire import StopReason
from tests.unit.builders import TIMING, a_call, a_write, failed, ok, said

TURN = "turn"
RUN: dict[str, Any] = {"attempt": 1, "runner": "host/1"}


def visit(store: TurnStore, owner: str) -> Visit:
    """Claim the turn."""
    opened = store.transact(TURN, partial(open_visit, owner=owner, timing=TIMING, tools_of=ignore))
    assert isinstance(opened, Opened)
    return opened.visit


def speaks(store: TurnStore, *calls: Call, owner: str = "visit-1") -> None:
    """Claim the turn, and commit a reply of the model."""
    held = visit(store, owner)
    store.transact(TURN, partial(plan, visit=held, said=said(*calls, text="so")))


def writes(store: TurnStore, call_id: str, outcome: ToolOutcome) -> None:
    """Start a write, prolong its lease, and end it."""
    store.transact(TURN, partial(start_write, call_id=call_id, tool=f"tool{call_id[-1]}", timing=TIMING, **RUN))
    store.beat_calls([RunningCall(turn_id=TURN, call_id=call_id, **RUN)], 6.0)
    store.transact(TURN, partial(hand_in, call_id=call_id, outcome=outcome, **RUN))


def finished_by_writes(store: TurnStore) -> None:
    """A turn with writes in order, one of them failed and one in doubt, and then an answer."""
    calls = (a_write(0), a_write(1), a_write(2), a_write(3))
    speaks(store, *calls)
    store.transact(TURN, partial(start_write, call_id="0.0", tool="tool0", timing=TIMING, **RUN))
    store.transact(TURN, partial(hand_back, call_id="0.0", **RUN))
    writes(store, "0.0", ok(calls[0]))
    writes(store, "0.1", failed(calls[1]))
    writes(store, "0.2", unknown(calls[2], "was cut"))
    speaks(store, owner="visit-2")


def finished_by_reads(store: TurnStore) -> None:
    """A turn with reads, an artifact, a late result and a nudge, and then an answer."""
    calls = (a_call(0), a_call(1))
    speaks(store, *calls)
    artifact = ToolArtifactReference(
        call_id="0.0", tool_name="tool0", artifact_id="art_1", summary="s", url="u", size_bytes=1, elapsed_ms=1.0
    )
    held = visit(store, "visit-2")
    store.transact(TURN, partial(open_visit, owner="other", timing=TIMING, tools_of=ignore))
    store.transact(TURN, partial(late, call_id="0.1", attempt=1))
    reports = {
        "0.0": ReadReport(state=None, outcome=artifact, started_at=1.0, finished_at=2.0, worker="w"),
        "0.1": ReadReport(state=None, outcome=ok(calls[1]), started_at=1.0, finished_at=2.0, worker="w"),
    }
    store.transact(TURN, partial(collect, visit=held, reports=reports))
    store.transact(TURN, partial(plan, visit=held, said=said(text="done")))


def failed_in_the_middle(store: TurnStore) -> None:
    """A turn with a write whose process is lost, which is then given up."""
    speaks(store, a_write(0), a_call(1, wave=1))
    store.transact(TURN, partial(start_write, call_id="0.0", tool="tool0", timing=TIMING, **RUN))
    store.lose_call(RunningCall(turn_id=TURN, call_id="0.0", **RUN))
    held = visit(store, "visit-2")
    store.beat_turns([HeldTurn(TURN, "visit-2", held.turn.fence)], 6.0)
    store.transact(TURN, fenced(held, partial(give_up, reason=StopReason.INTERNAL, message="oops")))
