"""The store: each method that writes is one transaction, and its events are sent once it is committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import Connection, Engine

from harness_worker import sessions
from harness_worker.adapters.sql.child_turns import CHILDREN, PARKED
from harness_worker.adapters.sql.commit import changes_of, event_row, message_row, writes_of
from harness_worker.adapters.sql.optimistic import commit_of, read_of, read_statement
from harness_worker.adapters.sql.pipeline import Write, answer, fetch
from harness_worker.adapters.sql.recent import Recent, Seen
from harness_worker.adapters.sql.rows import call_of, columns_of, event_of, message_of, past_of, turn_of
from harness_worker.adapters.sql.statements import (
    ADD_EVENT,
    ADD_MESSAGE,
    ADD_TURN,
    ALL_CALLS,
    BEAT_CALLS,
    BEAT_TURNS,
    DUE,
    EVENTS,
    GIVE_BACK,
    HELD_TURNS,
    HISTORY,
    LOCK_CALLS,
    LOCK_DUE,
    LOCK_TURN,
    LOSE_CALL,
    NOW,
    ONE_TURN,
    PING,
    PRIORITY,
    PUSH_DUE,
    add_artifact,
)
from harness_worker.adapters.sql.tenants import RUNNING, WAITING, WOKEN
from harness_worker.adapters.sql.transactions import TransactionResult, committing, read, write, write_all
from harness_worker.core.afterwards import after, needs_beats
from harness_worker.core.children import open_delegated
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.prompting.past import PastTurn
from harness_worker.core.queueing import first_message, queued_at, queued_event
from harness_worker.core.records import Call, CallStatus, Event, Message, Park, Turn
from harness_worker.ports import EventSink, HeldTurn, LoadedTurn, OverdueTurn, RunningCall, WaitingTurn
from harness_worker.wire import TurnStatus, child_turn_id

T = TypeVar("T")

READ: Final = read_statement()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided(Generic[T]):
    """A decision that stands.

    Args:
        result: The result for the caller; ``None`` if there is no such turn.
        events: The events to send.
        is_committed: Whether it wrote anything, which proves that the turn was still as the decision assumed.
    """

    result: T | None
    events: Sequence[Event] = ()
    is_committed: bool = False


class SqlTurnStore:
    """Implements ``ports.TurnStore`` on SQLite or Postgres.

    Args:
        engine: Made by ``make_engine``.
        events: Gets the events of each commit, once it is made.
        beats: The engine for heartbeats, with timeouts of its own; ``None``: they use ``engine``.
        artifact_ttl_s: How long artifacts are kept, in seconds.
        tenant_turns: How many turns of one tenant may run at a time; ``None``: any number.
        unlocked_tries: How many times, on Postgres, a decision is tried without a lock before the turn is locked.
    """

    def __init__(
        self,
        engine: Engine,
        events: EventSink,
        *,
        beats: Engine | None = None,
        artifact_ttl_s: float = 3_600.0,
        tenant_turns: int | None = None,
        unlocked_tries: int = 3,
    ) -> None:
        self._engine = engine
        self._beats = beats or engine
        self._events = events
        self._artifact_ttl_s = artifact_ttl_s
        self._tenant_turns = tenant_turns
        self._add_artifact = add_artifact(engine.dialect.name)
        self._take_place = sessions.take_place_of_new(engine.dialect.name)
        self._recent = Recent()
        self._unlocked_tries = unlocked_tries if engine.dialect.name == "postgresql" else 0

    def transact(self, turn_id: str, decide: Callable[[Snapshot], Decision[T]], *, follows: bool = False) -> T | None:
        """See ``ports.TurnStore.transact``; on Postgres it is tried without a lock first (ADR 14)."""
        decided = self._unlocked(turn_id, decide, follows=follows) or self._locked(turn_id, decide)
        self._events.send(decided.events)
        return decided.result

    def _unlocked(self, turn_id: str, decide: Callable[[Snapshot], Decision[T]], *, follows: bool) -> Decided[T] | None:
        """``None`` if another process was faster each time, or the database cannot decide without a lock."""

        def work(connection: Connection) -> Decided[T] | None:
            taken = self._recent.take(turn_id)
            left = None if taken is None or not follows else self._timed(connection, taken)
            decided = None if left is None else self._decided(connection, left, decide)
            if decided is not None and decided.is_committed:
                return decided
            seen = self._seen(connection, turn_id)
            return Decided(result=None) if seen is None else self._decided(connection, seen, decide)

        for _ in range(self._unlocked_tries):
            if decided := read(self._engine, work):
                return decided
        return None

    def _seen(self, connection: Connection, turn_id: str) -> Seen | None:
        asked = self._recent.clock()
        (rows,) = fetch(connection, [READ], {"turn_id": turn_id})
        if not rows:
            return None
        snapshot, version = read_of(rows[0])
        snapshot = self._placed(connection, snapshot)
        return Seen(snapshot=snapshot, version=version, at=self._recent.clock(), asked=asked)

    def _timed(self, connection: Connection, seen: Seen) -> Seen | None:
        """The turn as seen, with the database's time read again if a call runs; ``None`` if heartbeats are needed.

        The time that this process's clock continues lags, and could put the call's end before its body returned.
        """
        snapshot = seen.snapshot
        if not any(call.status is CallStatus.RUNNING for call in snapshot.calls):
            return seen
        ((now,),) = fetch(connection, [NOW], {})[0]
        snapshot = replace(snapshot, now=now)
        return None if needs_beats(snapshot) else replace(seen, snapshot=snapshot, at=self._recent.clock())

    def _decided(
        self, connection: Connection, seen: Seen, decide: Callable[[Snapshot], Decision[T]]
    ) -> Decided[T] | None:
        """Decide on the turn as seen, and commit; ``None`` if it has changed. A decision without changes is as old."""
        snapshot = seen.snapshot
        decision = decide(snapshot)
        changes = changes_of(snapshot, decision, artifact_ttl_s=self._artifact_ttl_s)
        if not changes:
            return Decided(result=decision.result)
        with committing(self._engine):
            version = answer(connection, *commit_of(changes, seen.version))
        if version is None:
            return None
        self._recent.keep(replace(seen, snapshot=after(snapshot, decision), version=version))
        return Decided(result=decision.result, events=changes.events, is_committed=True)

    def _locked(self, turn_id: str, decide: Callable[[Snapshot], Decision[T]]) -> Decided[T]:
        def work(connection: Connection) -> TransactionResult[Decided[T]]:
            snapshot = self._snapshot(connection, turn_id)
            if snapshot is None:
                return TransactionResult(value=Decided(result=None))
            decision = decide(snapshot)
            changes = changes_of(snapshot, decision, artifact_ttl_s=self._artifact_ttl_s)
            decided = Decided(result=decision.result, events=changes.events)
            return TransactionResult(value=decided, writes=writes_of(changes, self._add_artifact))

        return write(self._engine, work)

    def insert_turn(self, turn: Turn) -> None:
        """See ``ports.TurnStore.insert_turn``; does nothing if the turn exists already."""
        self._events.send(write(self._engine, lambda connection: _queue(connection, turn, self._take_place)))

    def load(self, turn_id: str) -> LoadedTurn | None:
        """See ``ports.TurnStore.load``."""
        return read(self._engine, lambda connection: _load(connection, turn_id))

    def history(self, turn_id: str) -> tuple[Message, ...]:
        """See ``ports.TurnStore.history``."""
        (rows,) = read(self._engine, lambda connection: fetch(connection, [HISTORY], {"turn_id": turn_id}))
        return tuple(map(message_of, rows))

    def events_of(self, turn_id: str) -> tuple[Event, ...]:
        """See ``ports.TurnStore.events_of``."""
        (rows,) = read(self._engine, lambda connection: fetch(connection, [EVENTS], {"turn_id": turn_id}))
        return tuple(map(event_of, rows))

    def past(self, turn: Turn) -> tuple[PastTurn, ...]:
        """See ``ports.TurnStore.past``."""
        values = {**_session_of(turn), "before_number": turn.number}
        wanted = [sessions.PAST_TURNS, sessions.PAST_MESSAGES]
        turns, messages = read(self._engine, lambda connection: fetch(connection, wanted, values))
        return past_of(turns, messages)

    def next_of_session(self, turn: Turn) -> WaitingTurn | None:
        """See ``ports.TurnStore.next_of_session``."""
        values = {**_session_of(turn), "after_number": turn.number}
        (rows,) = read(self._engine, lambda connection: fetch(connection, [sessions.NEXT], values))
        return WaitingTurn(*rows[0]) if rows else None

    def next_of_tenant(self, turn: Turn) -> list[WaitingTurn]:
        """See ``ports.TurnStore.next_of_tenant``."""
        if self._tenant_turns is None:
            return []
        found = read(self._engine, lambda connection: fetch(connection, WAITING, {"of_tenant": turn.tenant}))
        return [WaitingTurn(*row) for row in chain.from_iterable(found)][:WOKEN]

    def beat_turns(self, visits: Sequence[HeldTurn], ttl_s: float) -> frozenset[HeldTurn]:
        """See ``ports.TurnStore.beat_turns``."""
        if not visits:
            return frozenset()

        def work(connection: Connection) -> TransactionResult[frozenset[HeldTurn]]:
            beaten = connection.execute(BEAT_TURNS, {"visits": visits, "ttl_s": ttl_s}).all()
            goes_on = {HeldTurn(*row[:3]): not row.cancel_requested for row in beaten}
            if others := [visit for visit in visits if visit not in goes_on]:  # locked, or lost
                held = connection.execute(HELD_TURNS, {"visits": others})
                goes_on |= {HeldTurn(*row): True for row in held}
            return TransactionResult(value=frozenset(visit for visit in visits if not goes_on.get(visit, False)))

        return write(self._beats, work)

    def beat_calls(self, runs: Sequence[RunningCall], ttl_s: float) -> None:
        """See ``ports.TurnStore.beat_calls``; finds them by their runner, not by their attempt."""
        if not runs:
            return
        named = [(run.turn_id, *_step_and_position(run), run.runner) for run in runs]
        values = {"runs": named, "ttl_s": ttl_s}
        write_all(self._beats, [(BEAT_CALLS, [values])], is_patient=False)

    def lose_call(self, run: RunningCall) -> str | None:
        """See ``ports.TurnStore.lose_call``; is as impatient as a heartbeat: a worker's main thread waits."""
        step, position = _step_and_position(run)
        key = {"this_turn": run.turn_id, "this_step": step, "this_position": position}
        values = {**key, "this_attempt": run.attempt, "this_runner": run.runner}

        def work(connection: Connection) -> TransactionResult[str | None]:
            (rows,) = fetch(connection, [PRIORITY], {"turn_id": run.turn_id})
            return TransactionResult(value=rows[0][0] if rows else None, writes=[(LOSE_CALL, [values])])

        return write(self._beats, work, is_patient=False)

    def overdue(self, limit: int, backoff_s: float) -> list[OverdueTurn]:
        """See ``ports.TurnStore.overdue``; writes nothing, and takes no lock, if there are none."""
        if read(self._engine, lambda connection: connection.execute(DUE, {"most": 1}).first()) is None:
            return []
        return write(self._engine, lambda connection: self._take_due(connection, limit, backoff_s))

    def give_back(self, taken: Sequence[OverdueTurn]) -> None:
        """See ``ports.TurnStore.give_back``; turns being looked at are left alone."""
        rows = [{"this_turn": turn.id, "since": turn.since} for turn in sorted(taken)]
        write_all(self._engine, [(GIVE_BACK, rows)])

    def ping(self) -> None:
        """See ``ports.TurnStore.ping``; queries no rows."""
        read(self._engine, lambda connection: connection.execute(PING))

    def _snapshot(self, connection: Connection, turn_id: str) -> Snapshot | None:
        found, calls = fetch(connection, [LOCK_TURN, LOCK_CALLS], {"turn_id": turn_id})
        if not found:
            return None
        *columns, now = found[0]
        snapshot = Snapshot(now=now, turn=turn_of(columns), calls=tuple(map(call_of, calls)))
        return self._placed(connection, snapshot)

    def _placed(self, connection: Connection, snapshot: Snapshot) -> Snapshot:
        """The snapshot, completed by whether the turn must wait for others, and by the turns of its calls."""
        turn = snapshot.turn
        if turn.waits:
            snapshot = replace(snapshot, is_behind=_is_behind(connection, turn))
        if asked := open_delegated(snapshot.calls):
            children = _children(connection, turn, asked)
            snapshot = replace(snapshot, children=children, parked=_parked(connection, children))
        if self._tenant_turns is not None and turn.status is TurnStatus.QUEUED and turn.parent_id is None:
            ((running,),) = fetch(connection, [RUNNING], {"of_tenant": turn.tenant})[0]
            snapshot = replace(snapshot, is_crowded=running >= self._tenant_turns)
        return snapshot

    def _take_due(self, connection: Connection, limit: int, backoff_s: float) -> TransactionResult[list[OverdueTurn]]:
        rows = connection.execute(LOCK_DUE, {"most": limit})
        found = [OverdueTurn(row[0], row[1], row[2] == TurnStatus.QUEUED, row[3]) for row in rows]
        pushed = {"ids": [turn.id for turn in found], "backoff_s": backoff_s}
        return TransactionResult(value=found, writes=[(PUSH_DUE, [pushed] if found else [])])


def _queue(connection: Connection, turn: Turn, take_place: sessions.TakePlace) -> TransactionResult[list[Event]]:
    placed = connection.execute(take_place, {**_session_of(turn), "turn_id": turn.id}).one_or_none()
    if placed is None:
        return TransactionResult(value=[])
    number, now = placed
    ahead = [row.id for row in connection.execute(sessions.UNFINISHED, _session_of(turn))] if number > 1 else []
    queued = queued_at(replace(turn, number=number, waits=bool(ahead)), now)
    event = queued_event(queued)
    writes: list[Write] = [
        (sessions.FOLLOW, [{"ahead": ahead[-1:]}] if ahead else []),
        (ADD_TURN, [columns_of(queued)]),
        (ADD_MESSAGE, [message_row(turn.id, first_message(queued))]),
        (ADD_EVENT, [event_row(event)]),
    ]
    return TransactionResult(value=[event], writes=writes)


def _session_of(turn: Turn) -> dict[str, Any]:
    return {"of_tenant": turn.tenant, "of_session": turn.session_id}


def _children(connection: Connection, turn: Turn, asked: Sequence[Call]) -> tuple[Turn, ...]:
    ids = [child_turn_id(turn.id, call.call_id) for call in asked]
    return tuple(turn_of(row) for row in connection.execute(CHILDREN, {"of_parent": turn.id, "ids": ids}).all())


def _parked(connection: Connection, children: Sequence[Turn]) -> frozenset[Park]:
    ids = [park.turn_id for child in children for park in child.parked_below]
    rows = connection.execute(PARKED, {"ids": ids}).all() if ids else ()
    return frozenset(Park(turn_id=turn_id, fence=fence) for turn_id, fence in rows)


def _is_behind(connection: Connection, turn: Turn) -> bool:
    values = {**_session_of(turn), "before_number": turn.number}
    ((is_behind,),) = fetch(connection, [sessions.IS_BEHIND], values)[0]
    return bool(is_behind)


def _load(connection: Connection, turn_id: str) -> LoadedTurn | None:
    found, calls = fetch(connection, [ONE_TURN, ALL_CALLS], {"turn_id": turn_id})
    return LoadedTurn(turn_of(found[0]), tuple(map(call_of, calls))) if found else None


def _step_and_position(run: RunningCall) -> tuple[int, int]:
    step, position = run.call_id.split(".")
    return int(step), int(position)
