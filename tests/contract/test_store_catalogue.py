"""The contract of ``Catalogue``: one suite, on SQLite and on Postgres."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select, update

from harness_worker.adapters.sql.catalogue import GONE_S, RENEW_S
from harness_worker.adapters.sql.engine import reading
from harness_worker.core.budget import BudgetLimits
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.tools import AgentSpec, Arguments, BoundArguments, ToolSpec
from harness_worker.core.run_context import RunContext
from harness_worker.schema import agents, db_now
from tests.contract.store_world import World, in_threads


def tool(name: str, effect: Effect | None) -> ToolSpec:
    """A registered tool."""

    def invoke(arguments: Arguments, ctx: RunContext) -> object:
        return arguments, ctx

    return ToolSpec(
        name=name, description=f"Does {name}.", schema={"type": "object"}, effect=effect, idempotent=False,
        retry_safe=False, timeout_s=10.0, queue="tools", approval="never", lock=None,
        bind=lambda given: BoundArguments(values=given), keys=lambda _: None, invoke=invoke,
    )  # fmt: skip


def agent(name: str, *tools: ToolSpec, model: str = "m", **fields: Any) -> AgentSpec:  # noqa: ANN401 - any field
    """A registered agent."""
    return AgentSpec(name=name, model=model, system="s", tools=tools, **fields)


def published(world: World) -> dict[str, dict[str, Any]]:
    """The rows of the catalogue, by agent."""
    with reading(world.engine).connect() as connection:
        return {row["name"]: dict(row) for row in connection.execute(select(agents)).mappings()}


def test_publish_catalogue_tells_the_gateway_all_it_needs(world: World):
    """It gets tools with their schemas, queues and lax formats, and a budget that leaves nothing to a default."""
    read, unknown = tool("get_order", Effect.READ_ONLY), replace(tool("anything", None), checks_formats=False)
    world.catalogue.publish("shop:registry", [agent("support", read, unknown, budget={"max_steps": 0})])
    row = published(world)["support"]
    assert row["tools"] == [
        {"name": "get_order", "description": "Does get_order.", "effect": "READ_ONLY", "schema": {"type": "object"},
         "queue": "tools"},
        {"name": "anything", "description": "Does anything.", "effect": None, "schema": {"type": "object"},
         "queue": "tools", "checks_formats": False},
    ]  # fmt: skip
    assert row["budget"] == {
        "max_steps": 0, "max_tool_calls": 6, "max_reflections": 4, "max_tokens": None, "max_dollars": 1.0,
        "timeout_s": 60.0,
    }  # fmt: skip
    assert (row["app"], row["model"], row["parallel"]) == ("shop:registry", "m", True)
    assert row["published_at"] == pytest.approx(world.now(), abs=60)


def aged(world: World, age_s: float, *names: str) -> None:
    """Backdate the last time that a worker said it serves these agents; all agents if none is named."""
    which = agents.c.name.in_(names or published(world))
    with world.engine.begin() as connection:
        connection.execute(update(agents).where(which).values(published_at=db_now() - age_s))


def models(world: World) -> dict[str, str]:
    """The model of each published agent."""
    return {name: row["model"] for name, row in published(world).items()}


def test_publish_catalogue_takes_its_agents_over_and_leaves_those_of_others(world: World):
    """Changed agents are replaced; those of other versions and apps stay as long as a worker renews them."""
    world.catalogue.publish("one", [agent("a"), agent("b")])
    world.catalogue.publish("two", [agent("c")])
    world.catalogue.publish("one", [agent("b", model="new"), agent("d")])
    assert models(world) == {"a": "m", "b": "new", "c": "m", "d": "m"}
    aged(world, GONE_S, "a", "c")
    world.catalogue.publish("one", [agent("b", model="new")])
    assert models(world) == {"b": "new", "c": "m", "d": "m"}


def test_renew_catalogue_brings_back_what_another_version_took(world: World):
    """A missing agent is restored at once; one that another version changed, once that version is gone."""
    one, other = [agent("a"), agent("new")], [agent("a", model="old"), agent("old")]
    world.catalogue.publish("one", other)
    world.catalogue.renew("one", one)
    assert models(world) == {"a": "old", "old": "m", "new": "m"}
    aged(world, GONE_S, "a", "old")
    world.catalogue.renew("one", one)
    assert models(world) == {"a": "m", "new": "m"}


def test_renew_catalogue_forgets_none_that_somebody_keeps(world: World):
    """Two versions run side by side for longer than agents of a version that is gone are kept."""
    one, other = [agent("a"), agent("new")], [agent("a", model="old"), agent("old")]
    world.catalogue.publish("one", other)
    world.catalogue.renew("one", one)
    for _ in range(3):
        aged(world, GONE_S - 10)
        world.catalogue.renew("one", other)
        world.catalogue.renew("one", one)
        assert models(world) == {"a": "old", "old": "m", "new": "m"}


def test_renew_catalogue_after_the_database_was_away_judges_nobody(world: World):
    """A worker that could not renew its own agents for that long first lets others renew theirs."""
    one, other = [agent("a"), agent("new")], [agent("a", model="old"), agent("old")]
    world.catalogue.publish("one", other)
    world.catalogue.renew("one", one)
    aged(world, 10 * GONE_S)
    world.catalogue.renew("one", one)
    assert models(world) == {"a": "old", "old": "m", "new": "m"}
    world.catalogue.renew("one", one)
    assert models(world) == {"a": "m", "new": "m"}


def test_renew_catalogue_that_is_kept_writes_nothing(world: World):
    """What was renewed recently is not written again until some time has passed, whatever the tools' schemas."""
    schema = {"type": "object", "required": ("x",), "properties": {"x": {"enum": [1.0, None, "\u00e9"]}}}
    served = [agent("a", replace(tool("t", Effect.READ_ONLY), schema=schema), budget={"max_dollars": 0.25})]
    world.catalogue.publish("one", served)
    aged(world, RENEW_S - 10)
    before = published(world)
    world.catalogue.renew("one", served)
    assert published(world) == before
    aged(world, RENEW_S)
    world.catalogue.renew("one", served)
    assert published(world)["a"]["published_at"] == pytest.approx(world.now(), abs=60)


def test_renew_catalogue_leaves_other_apps_agents_to_them(world: World):
    """They stay however long nobody has renewed them: the other apps may run versions that renew nothing."""
    world.catalogue.publish("two", [agent("c")])
    aged(world, 10 * GONE_S)
    world.catalogue.renew("one", [agent("a")])
    assert sorted(published(world)) == ["a", "c"]


def test_publish_catalogue_by_many_workers_at_once_stands_once(world: World):
    """A fleet that starts together publishes the same agents, in any order, without an error."""
    names = ["a", "b", "c", "d"]

    def publish(n: int) -> None:
        world.catalogue.publish("one", [agent(name) for name in names[n % 4 :] + names[: n % 4]])

    in_threads(16, publish)
    assert sorted(published(world)) == names


def test_caps_of_an_agent_are_those_published(world: World):
    """They are complete whatever the agent left to defaults; an unknown agent has none."""
    world.catalogue.publish("one", [agent("a", budget={"max_steps": 3, "max_tokens": 500}), agent("b")])
    assert world.catalogue.caps_of("a") == BudgetLimits(max_steps=3, max_tokens=500)
    assert world.catalogue.caps_of("b") == BudgetLimits()
    assert world.catalogue.caps_of("c") is None
