"""The in-memory store, on which the protocol is simulated, writes what the SQL store writes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, cast

import pytest

from harness_worker.adapters.sql.engine import make_engine
from harness_worker.adapters.sql.store import SqlTurnStore
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
from tests.contract.store_world import RecordedEvents
from tests.unit.builders import TIMING, a_call, a_turn, a_write, failed, ok, said
from tests.unit.memory_store import MemoryTurnStore

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


def rows(store: TurnStore, events: list[Any]) -> str:
    """Everything that a client could see, without times."""
    turn, calls = store.load(TURN) or (None, ())
    journal = {
        "turn": asdict(turn) if turn is not None else None,
        "calls": [asdict(call) for call in calls],
        "messages": [asdict(message) for message in store.history(TURN)],
        "events": [(event.seq, event.type, event.data) for event in events],
    }
    return json.dumps(_timeless(journal), default=str, sort_keys=True, indent=1)


def _timeless(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {key: "some" if _is_time(key, item) else _timeless(item) for key, item in entries.items()}
    if isinstance(value, list | tuple):
        return [_timeless(item) for item in cast("list[Any]", value)]
    return value


def _is_time(key: str, value: object) -> bool:
    return value is not None and key.endswith(("_at", "_until", "_deadline"))


@pytest.mark.parametrize("history", [finished_by_writes, finished_by_reads, failed_in_the_middle])
def test_fake_writes_what_sql_writes(sqlite_url: str, history: Callable[[TurnStore], None]) -> None:
    """The same history leaves the same rows, messages and events."""
    sink, fake = RecordedEvents(), MemoryTurnStore(time.time)
    engine = make_engine(sqlite_url)
    real = SqlTurnStore(engine, sink)
    for store in (real, fake):
        store.insert_turn(a_turn(id=TURN))
        history(store)
    assert fake.turns[TURN].status.is_final
    assert rows(fake, fake.events) == rows(real, sink.sent)
    engine.dispose()


def test_fake_finds_what_is_overdue(sqlite_url: str) -> None:
    """A queued turn is due once and then put off, unless it is given back."""
    engine = make_engine(sqlite_url)
    for store in (SqlTurnStore(engine, RecordedEvents()), MemoryTurnStore(time.time)):
        store.insert_turn(a_turn(id=TURN))
        (taken,) = store.overdue(10, 60.0)
        assert taken[:3] == (TURN, "interactive", True)
        assert store.overdue(10, 60.0) == []
        store.give_back([taken])
        assert store.overdue(10, 60.0) == [taken]
    engine.dispose()
