"""``harness memories``: what operators see of memories, and how a user is forgotten."""

from __future__ import annotations

import json

import pytest

from harness_worker.adapters.sql.memories import SqlMemories
from harness_worker.core.decisions import Decision
from harness_worker.core.memory.memories import Memory, MemoryKind
from tests.contract.store_world import World
from tests.stacks import run_here

pytestmark = pytest.mark.one_database("sqlite")

NAME = Memory(kind=MemoryKind.FACT, text="my name is\x1b Änn")
TEA = Memory(kind=MemoryKind.PREFERENCE, text="I like tea")
OTHERS = (("bob", "default"), ("ann", "acme"), ("", "default"))
"""Users and tenants that differ from Ann of the default tenant in only one of both; the last has no user."""


def remember(world: World, *memories: Memory, user: str = "ann", tenant: str = "default") -> str:
    """Have a turn of a user leave these memories; returns the turn's id."""
    turn_id = world.queued(metadata={"user": user} if user else {}, tenant=tenant)
    world.store.transact(turn_id, lambda _: Decision(result=None, memories=memories))
    return turn_id


def test_user_is_forgotten_and_nobody_else(world: World, database_url: str) -> None:
    """Other users of the tenant, users of that name of other tenants, and sessions without a user are kept."""
    env = {"HARNESS_DATABASE_URL": database_url}
    remember(world, NAME)
    remember(world, TEA, NAME)
    for user, tenant in OTHERS:
        remember(world, TEA, user=user, tenant=tenant)
    forgot = run_here("memories", "forget", "--user", "ann", env=env)
    assert (forgot.returncode, forgot.stdout) == (0, "forgot 3 memories of user 'ann' of tenant default\n")
    memories = SqlMemories(world.engine)
    assert memories.recall("default", "user:ann", 10) == ()
    assert memories.recall("default", "user:bob", 10) == (TEA,)
    assert memories.recall("acme", "user:ann", 10) == (TEA,)
    again = run_here("memories", "forget", "--user", "ann", "--json", env=env)
    assert (again.returncode, json.loads(again.stdout)) == (0, {"forgotten": 0})
    assert run_here("memories", "forget", "--user", "ann", "--tenant", "acme", "--json", env=env).returncode == 0
    assert memories.recall("acme", "user:ann", 10) == ()


def test_memories_of_a_user_are_listed(world: World, database_url: str) -> None:
    """Each is listed with its turn, verbatim as JSON, and made safe for a terminal; none of anybody else."""
    env = {"HARNESS_DATABASE_URL": database_url}
    turn_id = remember(world, NAME, TEA)
    for user, tenant in OTHERS:
        remember(world, TEA, user=user, tenant=tenant)
    told = json.loads(run_here("memories", "list", "--user", "ann", "--json", env=env).stdout)["data"]
    assert [(each["kind"], each["text"], each["turn_id"]) for each in told] == [
        ("fact", NAME.text, turn_id),
        ("preference", TEA.text, turn_id),
    ]
    shown = run_here("memories", "list", "--user", "ann", env=env)
    assert [line.split("  ", 1)[1] for line in shown.stdout.splitlines()] == [
        "fact        my name is· Änn",
        "preference  I like tea",
    ]
    nobody = run_here("memories", "list", "--user", "zoe", env=env)
    assert (nobody.returncode, nobody.stdout) == (0, "")
    assert nobody.stderr == "nothing is remembered of user 'zoe' of tenant default\n"
