"""The in-memory store, on which the protocol is simulated, writes what the SQL store writes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, cast

import pytest

from harness_worker.adapters.sql.engine import make_engine
from harness_worker.adapters.sql.store import SqlTurnStore
from harness_worker.ports import TurnStore
from tests.contract.store_histories import TURN, failed_in_the_middle, finished_by_reads, finished_by_writes
from tests.contract.store_world import RecordedEvents
from tests.unit.builders import a_turn
from tests.unit.memory_store import MemoryTurnStore


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
