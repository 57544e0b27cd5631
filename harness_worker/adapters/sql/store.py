"""The store: one write transaction a method, events sent once it is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine

from harness_worker.adapters.sql import statements
from harness_worker.adapters.sql.commit import Journal, event_row
from harness_worker.adapters.sql.engine import reading
from harness_worker.adapters.sql.rows import TURN_FIELDS, agent_row, call_of, columns_of, message_of, turn_of
from harness_worker.adapters.sql.transactions import read, write
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
        self._statements = statements.statements_for(engine.dialect.name)
        self._journal = Journal(statements=self._statements)

    def transact(self, turn_id: str, decide: Callable[[Snapshot], Decision[T]]) -> T | None:
        """Lock the turn, let ``decide`` say what becomes of it, write that, commit, then send its events."""

        def work(connection: Connection) -> tuple[T, list[Event]] | None:
            snapshot = self._snapshot(connection, turn_id)
            if snapshot is None:
                return None
            decision = decide(snapshot)
            return decision.result, self._journal.write(connection, snapshot, decision)

        committed = write(self._engine, work)
        if committed is None:
            return None
        self._send(committed[1])
        return committed[0]

    def insert_turn(self, turn: Turn) -> None:
        """Add a queued turn with its user message and ``turn.queued``; nothing if it is there already."""
        self._send(write(self._engine, lambda connection: self._insert(connection, turn)))

    def load(self, turn_id: str) -> tuple[Turn, tuple[Call, ...]] | None:
        """The turn and all its calls, ordered by step and position; no lock."""
        return read(self._reader, lambda connection: _load(connection, turn_id))

    def history(self, turn_id: str) -> tuple[Message, ...]:
        """The turn's messages in order."""
        wanted = {"turn_id": turn_id}
        return tuple(map(message_of, read(self._reader, lambda c: c.execute(statements.HISTORY, wanted).all())))

    def beat_turn(self, turn_id: str, owner: str, fence: int, ttl_s: float) -> None:
        """Prolong a visit's lease, never past its ``visit_deadline``; only if ``owner`` and ``fence`` still hold it."""
        held = {"turn_id": turn_id, "by": owner, "with_fence": fence, "ttl_s": ttl_s}
        write(self._beats, lambda connection: connection.execute(self._statements.beat_turn, held))

    def beat_calls(self, runs: Sequence[RunningCall], ttl_s: float) -> None:
        """Prolong the leases of running writes; locked rows are left alone (locked is not lost)."""
        if not runs:
            return
        named = [(run.turn_id, *_step_and_position(run), run.runner) for run in runs]
        values = {"runs": named, "ttl_s": ttl_s}
        write(self._beats, lambda connection: connection.execute(self._statements.beat_calls, values))

    def lose_call(self, run: RunningCall) -> None:
        """End the lease of a running write whose process is known to be dead."""
        step, position = _step_and_position(run)
        key = {"this_turn": run.turn_id, "this_step": step, "this_position": position}
        values = {**key, "this_attempt": run.attempt, "this_runner": run.runner}
        write(self._engine, lambda connection: connection.execute(self._statements.lose_call, values))

    def overdue(self, limit: int, backoff_s: float) -> list[tuple[str, str]]:
        """Turns that somebody must look at and nobody does, as (id, priority), oldest first."""
        if read(self._reader, lambda connection: connection.execute(self._statements.due, {"most": 1}).first()) is None:
            return []
        return write(self._engine, lambda connection: self._take_due(connection, limit, backoff_s))

    def publish_catalogue(self, app: str, agents: Iterable[AgentSpec]) -> None:
        """Replace what ``app`` published before; an agent of that name from another app is taken over."""
        rows = [agent_row(app, agent) for agent in sorted(agents, key=lambda agent: agent.name)]
        write(self._engine, lambda connection: self._publish(connection, app, rows))

    def _snapshot(self, connection: Connection, turn_id: str) -> Snapshot | None:
        row = connection.execute(self._statements.lock_turn, {"turn_id": turn_id}).one_or_none()
        if row is None:
            return None
        calls = connection.execute(self._statements.lock_calls, {"turn_id": turn_id})
        return Snapshot(now=row[-1], turn=turn_of(row[: len(TURN_FIELDS)]), calls=tuple(map(call_of, calls)))

    def _insert(self, connection: Connection, turn: Turn) -> list[Event]:
        now: float = connection.execute(statements.NOW).scalar_one()
        times = {"created_at": now, "wake_at": now, "deadline_at": now + turn.budget.timeout_s}
        row = {**columns_of(turn), **times, "last_seq": 1, "message_count": 1}
        if connection.execute(self._statements.add_turn, row).rowcount == 0:
            return []
        message = {"turn_id": turn.id, "position": 0, "role": "user", "content": turn.input}
        connection.execute(statements.ADD_MESSAGE, message)
        data = {"agent": turn.agent, "session_id": turn.session_id}
        queued = Event(turn_id=turn.id, seq=1, type="turn.queued", at=now, data=data)
        connection.execute(statements.ADD_EVENT, event_row(queued))
        return [queued]

    def _take_due(self, connection: Connection, limit: int, backoff_s: float) -> list[tuple[str, str]]:
        found = connection.execute(self._statements.lock_due, {"most": limit}).all()
        if found:
            ids = [row[0] for row in found]
            connection.execute(self._statements.push_due, {"ids": ids, "backoff_s": backoff_s})
        return [(row[0], row[1]) for row in found]

    def _publish(self, connection: Connection, app: str, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            connection.execute(self._statements.put_agent, row)
        kept = [row["name"] for row in rows]
        connection.execute(statements.FORGET_AGENTS, {"this_app": app, "kept": kept})

    def _send(self, events: Sequence[Event]) -> None:
        if events:
            self._events.send(events)


def _load(connection: Connection, turn_id: str) -> tuple[Turn, tuple[Call, ...]] | None:
    row = connection.execute(statements.ONE_TURN, {"turn_id": turn_id}).one_or_none()
    if row is None:
        return None
    return turn_of(row), tuple(map(call_of, connection.execute(statements.ALL_CALLS, {"turn_id": turn_id}).all()))


def _step_and_position(run: RunningCall) -> tuple[int, int]:
    step, position = run.call_id.split(".")
    return int(step), int(position)
