"""The store: one write transaction a method, events sent once it is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Executable

from harness_worker.adapters.sql.commit import event_row, writes_of
from harness_worker.adapters.sql.engine import reading
from harness_worker.adapters.sql.pipeline import Write, fetch
from harness_worker.adapters.sql.rows import agent_row, call_of, columns_of, message_of, turn_of
from harness_worker.adapters.sql.statements import (
    ADD_EVENT,
    ADD_MESSAGE,
    ADD_TURN,
    ALL_CALLS,
    FORGET_AGENTS,
    HISTORY,
    NOW_AND_WHETHER,
    ONE_TURN,
    statements_for,
)
from harness_worker.adapters.sql.transactions import Outcome, read, write
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.records import Call, Message, Turn
from harness_worker.core.tools import AgentSpec
from harness_worker.ports import Event, EventSink, RunningCall

T = TypeVar("T")


class SqlTurnStore:
    """``TurnStore`` on SQLite or Postgres.

    Args:
        engine: Made by ``make_engine``.
        events: Gets the events of each commit, after it.
        beats: The engine of the heartbeats, with timeouts of its own; without one they use ``engine``.
    """

    def __init__(self, engine: Engine, events: EventSink, *, beats: Engine | None = None) -> None:
        self._engine = engine
        self._reader = reading(engine)
        self._beats = beats or engine
        self._events = events
        self._statements = statements_for(engine.dialect.name)

    def transact(self, turn_id: str, decide: Callable[[Snapshot], Decision[T]]) -> T | None:
        """Lock the turn, let ``decide`` say what becomes of it, write that, commit, then send its events."""

        def work(connection: Connection) -> Outcome[tuple[T, list[Event]] | None]:
            snapshot = self._snapshot(connection, turn_id)
            if snapshot is None:
                return Outcome(value=None, writes=())
            decision = decide(snapshot)
            writes, events = writes_of(self._statements, snapshot, decision)
            return Outcome(value=(decision.result, events), writes=writes)

        committed = write(self._engine, work)
        if committed is None:
            return None
        self._send(committed[1])
        return committed[0]

    def insert_turn(self, turn: Turn) -> None:
        """Add a queued turn with its user message and ``turn.queued``; nothing if it is there already."""
        self._send(write(self._engine, lambda connection: _queue(connection, turn)))

    def load(self, turn_id: str) -> tuple[Turn, tuple[Call, ...]] | None:
        """The turn and all its calls, ordered by step and position; no lock."""
        return read(self._reader, lambda connection: _load(connection, turn_id))

    def history(self, turn_id: str) -> tuple[Message, ...]:
        """The turn's messages in order."""
        (rows,) = read(self._reader, lambda connection: fetch(connection, [HISTORY], {"turn_id": turn_id}))
        return tuple(map(message_of, rows))

    def beat_turn(self, turn_id: str, owner: str, fence: int, ttl_s: float) -> None:
        """Prolong a visit's lease, never past its ``visit_deadline``; only if ``owner`` and ``fence`` still hold it."""
        held = {"turn_id": turn_id, "by": owner, "with_fence": fence, "ttl_s": ttl_s}
        self._just(self._beats, self._statements.beat_turn, held)

    def beat_calls(self, runs: Sequence[RunningCall], ttl_s: float) -> None:
        """Prolong the leases of running writes; locked rows are left alone (locked is not lost)."""
        if not runs:
            return
        named = [(run.turn_id, *_step_and_position(run), run.runner) for run in runs]
        values = {"runs": named, "ttl_s": ttl_s}
        self._just(self._beats, self._statements.beat_calls, values)

    def lose_call(self, run: RunningCall) -> None:
        """End the lease of a running write whose process is known to be dead."""
        step, position = _step_and_position(run)
        key = {"this_turn": run.turn_id, "this_step": step, "this_position": position}
        values = {**key, "this_attempt": run.attempt, "this_runner": run.runner}
        self._just(self._engine, self._statements.lose_call, values)

    def overdue(self, limit: int, backoff_s: float) -> list[tuple[str, str]]:
        """Turns that somebody must look at and nobody does, as (id, priority), oldest first."""
        if read(self._reader, lambda connection: connection.execute(self._statements.due, {"most": 1}).first()) is None:
            return []
        return write(self._engine, lambda connection: self._take_due(connection, limit, backoff_s))

    def publish_catalogue(self, app: str, agents: Iterable[AgentSpec]) -> None:
        """Replace what ``app`` published before; an agent of that name from another app is taken over."""
        rows = [agent_row(app, agent) for agent in sorted(agents, key=lambda agent: agent.name)]
        forget = {"this_app": app, "kept": [row["name"] for row in rows]}
        # One upsert after the other, in one order: workers that publish at once wait for each other.
        writes: list[Write] = [*((self._statements.put_agent, [row]) for row in rows), (FORGET_AGENTS, [forget])]
        write(self._engine, lambda _: Outcome(value=None, writes=writes))

    def _snapshot(self, connection: Connection, turn_id: str) -> Snapshot | None:
        locks = (self._statements.lock_turn, self._statements.lock_calls)
        found, calls = fetch(connection, locks, {"turn_id": turn_id})
        if not found:
            return None
        *columns, now = found[0]
        return Snapshot(now=now, turn=turn_of(columns), calls=tuple(map(call_of, calls)))

    def _take_due(self, connection: Connection, limit: int, backoff_s: float) -> Outcome[list[tuple[str, str]]]:
        found = [(row[0], row[1]) for row in connection.execute(self._statements.lock_due, {"most": limit})]
        pushed = {"ids": [turn_id for turn_id, _ in found], "backoff_s": backoff_s}
        return Outcome(value=found, writes=[(self._statements.push_due, [pushed] if found else [])])

    def _just(self, engine: Engine, statement: Executable, values: dict[str, Any]) -> None:
        write(engine, lambda _: Outcome(value=None, writes=[(statement, [values])]))

    def _send(self, events: Sequence[Event]) -> None:
        if events:
            self._events.send(events)


def _queue(connection: Connection, turn: Turn) -> Outcome[list[Event]]:
    ((now, exists),) = fetch(connection, [NOW_AND_WHETHER], {"turn_id": turn.id})[0]
    if exists:
        return Outcome(value=[], writes=())
    times = {"created_at": now, "wake_at": now, "deadline_at": now + turn.budget.timeout_s}
    row = {**columns_of(turn), **times, "last_seq": 1, "message_count": 1}
    message = {"turn_id": turn.id, "position": 0, "role": "user", "content": turn.input}
    data = {"agent": turn.agent, "session_id": turn.session_id}
    queued = Event(turn_id=turn.id, seq=1, type="turn.queued", at=now, data=data)
    writes: list[Write] = [(ADD_TURN, [row]), (ADD_MESSAGE, [message]), (ADD_EVENT, [event_row(queued)])]
    return Outcome(value=[queued], writes=writes)


def _load(connection: Connection, turn_id: str) -> tuple[Turn, tuple[Call, ...]] | None:
    found, calls = fetch(connection, [ONE_TURN, ALL_CALLS], {"turn_id": turn_id})
    return (turn_of(found[0]), tuple(map(call_of, calls))) if found else None


def _step_and_position(run: RunningCall) -> tuple[int, int]:
    step, position = run.call_id.split(".")
    return int(step), int(position)
