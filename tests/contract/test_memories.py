"""The contract of the store of memories: on SQLite, on Postgres, and in the fake of the unit tests."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial

import pytest

from harness_worker.adapters.sql.memories import SqlMemories
from harness_worker.adapters.sql.store import SqlTurnStore
from harness_worker.core.decisions import Decision
from harness_worker.core.memory.memories import Memory, MemoryKind
from harness_worker.ports import MemoryStore, TurnStore
from tests.contract.store_world import new_turn, world_of
from tests.unit.memory_store import MemoryTurnStore

TEA = Memory(kind=MemoryKind.PREFERENCE, text='I like tea; \U0001f375 "yes"\n')
ANN = Memory(kind=MemoryKind.FACT, text="my name is Ann")
BOB = Memory(kind=MemoryKind.FACT, text="my name is Bob")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembering:
    """A store of memories, and the journal whose commits add to it."""

    memories: MemoryStore
    journal: TurnStore

    def remember(self, *memories: Memory, session: str = "s", tenant: str = "t", user: str = "") -> str:
        """Commit these memories with a new turn, and return its id."""
        turn = new_turn(session_id=session, tenant=tenant, metadata={"user": user} if user else {})
        self.journal.insert_turn(turn)
        self.journal.transact(turn.id, lambda _: Decision(result=None, memories=memories))
        return turn.id


@pytest.fixture(params=["sqlite", "postgres", "postgres locked", "fake"])
def remembering(request: pytest.FixtureRequest) -> Generator[Remembering]:
    """An empty store of memories."""
    kind: str = request.param
    if kind == "fake":
        times = iter(range(1, 1_000_000))
        fake = MemoryTurnStore(lambda: float(next(times)))
        yield Remembering(memories=fake, journal=fake)
        return
    yield from _on_sql(request.getfixturevalue(f"{kind.partition(' ')[0]}_url"), locked=kind.endswith("locked"))


def _on_sql(url: str, *, locked: bool) -> Generator[Remembering]:
    with world_of(url) as world:
        journal = SqlTurnStore(world.engine, world.sink, unlocked_tries=0) if locked else world.store
        yield Remembering(memories=SqlMemories(world.engine), journal=journal)


def test_memories_are_recalled_newest_first(remembering: Remembering) -> None:
    """Within a commit the last one said comes first; whatever their text, memories come back unchanged."""
    remembering.remember(ANN)
    remembering.remember(TEA, BOB)
    assert remembering.memories.recall("t", "session:s", 10) == (BOB, TEA, ANN)
    assert remembering.memories.recall("t", "session:s", 2) == (BOB, TEA)


def test_memory_said_again_is_one_and_the_newest(remembering: Remembering) -> None:
    """Each text is returned once, in the place of its latest mention."""
    for memory in (ANN, BOB, ANN):
        remembering.remember(memory)
    assert remembering.memories.recall("t", "session:s", 10) == (ANN, BOB)


def test_memories_stay_within_their_scope(remembering: Remembering) -> None:
    """Tenants and sessions see nothing of each other; a user has the same memories in all sessions of the tenant."""
    remembering.remember(ANN, session="one")
    remembering.remember(BOB, session="one", tenant="other")
    remembering.remember(TEA, session="two", user="ann")
    recalled = partial(remembering.memories.recall, limit=10)
    assert recalled("t", "session:one") == (ANN,)
    assert recalled("other", "session:one") == (BOB,)
    assert (recalled("t", "session:two"), recalled("t", "user:ann")) == ((), (TEA,))
    assert (recalled("other", "user:ann"), recalled("t", "user:one")) == ((), ())


def test_memories_of_a_commit_that_changes_a_turn_are_written_with_it(remembering: Remembering) -> None:
    """They are written once, beside the other changes of the same commit."""
    turn = new_turn(session_id="s", tenant="t")
    remembering.journal.insert_turn(turn)
    remembering.journal.transact(
        turn.id, lambda s: Decision(result=None, turn=replace(s.turn, output_text="so"), memories=(ANN, TEA))
    )
    loaded = remembering.journal.load(turn.id)
    assert loaded is not None
    assert (loaded.turn.output_text, remembering.memories.recall("t", "session:s", 10)) == ("so", (TEA, ANN))


def test_memories_of_an_id_that_comes_again_stand_beside_the_first_ones(remembering: Remembering) -> None:
    """Memories outlive their turn, whose id a producer may then give to another one."""
    turn = new_turn(session_id="s", tenant="t")
    remembering.journal.insert_turn(turn)
    for memory in (ANN, TEA):
        remembering.journal.transact(turn.id, lambda _, each=memory: Decision(result=None, memories=(each,)))
    assert remembering.memories.recall("t", "session:s", 10) == (TEA, ANN)
