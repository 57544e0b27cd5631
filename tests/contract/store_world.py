"""What the store's contract suite works with: a store that records its events, and turns and calls to put in."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, select, text

from harness_worker.adapters.sql.artifacts import SqlArtifacts
from harness_worker.adapters.sql.catalogue import SqlCatalogue
from harness_worker.adapters.sql.engine import make_engine, reading
from harness_worker.adapters.sql.store import SqlTurnStore
from harness_worker.core.budget import BudgetLimits
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.records import Call, CallStatus, Event, EventDraft, Turn
from harness_worker.core.registration.effects import Effect
from harness_worker.schema import db_now, messages, tool_calls, turn_events, turns
from harness_worker.wire import TurnStatus

T = TypeVar("T")

_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvents:
    """An event sink that records what it is sent."""

    sent: list[Event] = field(default_factory=list[Event])

    def send(self, events: Sequence[Event]) -> None:
        """Record the events."""
        self.sent.extend(events)

    def hint(self, turn_id: str, kind: str, data: Mapping[str, Any]) -> None:
        """Ignore the hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A store on a real database.

    Args:
        store: The store under test.
        engine: For access to the database beside the store.
        sink: Records the events that the store sent.
    """

    store: SqlTurnStore
    engine: Engine
    sink: RecordedEvents = field(repr=False)

    @property
    def artifacts(self) -> SqlArtifacts:
        """The artifacts in the same database."""
        return SqlArtifacts(self.engine)

    @property
    def catalogue(self) -> SqlCatalogue:
        """The agents published in the same database."""
        return SqlCatalogue(self.engine)

    def queued(self, **changes: Any) -> str:  # noqa: ANN401 - any field's value
        """Insert a turn and return its id."""
        turn = new_turn(**changes)
        self.store.insert_turn(turn)
        return turn.id

    def change(self, turn_id: str, **changes: Any) -> None:  # noqa: ANN401 - any field's value
        """Change fields of a turn."""
        self.store.transact(turn_id, lambda s: Decision(result=None, turn=replace(s.turn, **changes)))

    def put(self, *calls: Call) -> None:
        """Insert or change calls of one turn."""
        self.store.transact(calls[0].turn_id, lambda _: Decision(result=None, calls=calls))

    def turn(self, turn_id: str) -> Turn:
        """The turn as it is now."""
        return self._loaded(turn_id)[0]

    def calls(self, turn_id: str) -> tuple[Call, ...]:
        """The turn's calls."""
        return self._loaded(turn_id)[1]

    def seqs(self, turn_id: str) -> list[int]:
        """The numbers of the turn's events."""
        wanted = select(turn_events.c.seq).where(turn_events.c.turn_id == turn_id).order_by(turn_events.c.seq)
        with reading(self.engine).connect() as connection:
            return list(connection.scalars(wanted))

    def now(self) -> float:
        """The time by the database's clock."""
        with reading(self.engine).connect() as connection:
            return connection.execute(select(db_now())).scalar_one()

    @contextmanager
    def locked(self, statement: Any) -> Generator[Connection]:  # noqa: ANN401 - any statement
        """Hold the locks of ``statement`` in a transaction of another connection."""
        with self.engine.connect() as connection:
            connection.execute(statement)
            yield connection
            connection.rollback()

    def _loaded(self, turn_id: str) -> tuple[Turn, tuple[Call, ...]]:
        loaded = self.store.load(turn_id)
        assert loaded is not None
        return loaded


def waiters(world: World) -> int:
    """How many connections wait for a lock."""
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    with reading(world.engine).connect() as connection:
        return connection.scalar(waiting) or 0


def turn_around(world: World) -> None:
    """Have the rows of Postgres's tables lie, and be read, in the opposite order: it learns that they are few."""
    numbered = {turns: turns.c.number, tool_calls: tool_calls.c.position, messages: messages.c.position}
    with world.engine.begin() as connection:
        for table, number in {**numbered, turn_events: turn_events.c.seq}.items():
            connection.execute(text(f"CREATE INDEX backwards ON {table.name} ({number.name} DESC)"))
            connection.execute(text(f"CLUSTER {table.name} USING backwards"))
            connection.execute(text("DROP INDEX backwards"))
        connection.execute(text("ANALYZE"))


def is_crowded(store: SqlTurnStore, turn_id: str) -> bool | None:
    """Whether the store says that the turn's tenant has used up its share."""
    return store.transact(turn_id, lambda snapshot: Decision(result=snapshot.is_crowded))


def in_threads(count: int, task: Callable[[int], T], *, threads: int = 8) -> list[T]:
    """The results of ``task(0)`` … ``task(count - 1)``, run by several threads."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(task, range(count)))


@contextmanager
def world_of(database_url: str) -> Generator[World]:
    """A store on that database; its connections are closed at the end."""
    engine = make_engine(database_url)
    sink = RecordedEvents()
    try:
        yield World(store=SqlTurnStore(engine, sink), engine=engine, sink=sink)
    finally:
        engine.dispose()


def new_turn(**changes: Any) -> Turn:  # noqa: ANN401 - any field's value
    """A turn about to be queued, with an id and a session of its own."""
    number = next(_numbers)
    turn = Turn(
        id=f"turn-{number}",
        tenant="default",
        session_id=f"session-{number}",
        agent="support",
        status=TurnStatus.QUEUED,
        input="Where is my order?",
        priority="interactive",
        budget=BudgetLimits(),
    )
    return replace(turn, **changes)


def new_call(turn_id: str, position: int = 0, **changes: Any) -> Call:  # noqa: ANN401 - any field's value
    """A planned write of step 0."""
    call = Call(
        turn_id=turn_id,
        step=0,
        position=position,
        tool_use_id=f"toolu_{position}",
        tool="cancel_order",
        effect=Effect.LOCAL_WRITE,
        arguments={"order_id": "W1"},
        wave=position,
        retry_safe=False,
        timeout_s=10.0,
        queue="tools",
        idempotency_key=f"{turn_id}/0.{position}",
    )
    return replace(call, **changes)


def running(turn_id: str, position: int = 0, **changes: Any) -> Call:  # noqa: ANN401 - any field's value
    """A write that runs as attempt 1 in ``host/7``, with a lease that expired long ago."""
    fields = {"status": CallStatus.RUNNING, "runner": "host/7", "lease_until": 1.0}
    return new_call(turn_id, position, **{**fields, **changes})


def one_event(_snapshot: Snapshot) -> Decision[None]:
    """A decision that only adds an event."""
    return Decision(result=None, events=(EventDraft(type="step.started", data={}),))


def deciding(decision: Decision[Any]) -> Callable[[Snapshot], Decision[Any]]:
    """A rule that always returns this decision."""
    return lambda _: decision
