"""The vaults, retrievers and tools that a process makes for its agents."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness_worker import AgentHarness, Effect, Registry
from harness_worker.bootstrap.knowledge import Knowledge, make_knowledge
from harness_worker.config import Settings
from harness_worker.errors import ConfigError

MODEL = "scripted:none.jsonl"


def known(registry: Registry, **settings: str) -> Knowledge:
    """What is made for the agents under these settings."""
    return make_knowledge(Settings.model_validate(settings), registry.agents)


def tools(knowledge: Knowledge) -> dict[str, list[str]]:
    """The tools of each agent."""
    return {name: [tool.name for tool in agent.tools] for name, agent in knowledge.agents.items()}


def test_vault_of_the_settings_is_that_of_agents_without_one(tmp_path: Path) -> None:
    """Every agent has a vault and its tool; agents that share a directory share what was read from it."""
    own, common = tmp_path / "own", tmp_path / "common"
    own.mkdir()
    common.mkdir()
    registry = Registry()
    registry.agent("own", model=MODEL, vault=str(own))
    registry.agent("one", model=MODEL)
    registry.agent("two", model=MODEL)
    knowledge = known(registry, vault=str(common))
    assert tools(knowledge) == {name: ["get_context_pack"] for name in ("own", "one", "two")}
    assert knowledge.vaults["one"] is knowledge.vaults["two"]
    assert knowledge.vaults["own"] is not knowledge.vaults["one"]
    assert tools(known(registry)) == {"own": ["get_context_pack"], "one": [], "two": []}


def test_tool_of_that_name_takes_the_place_of_ours(tmp_path: Path) -> None:
    """An agent with a tool of that name keeps its own, and is offered no second one."""
    registry = Registry()

    @registry.tool
    def get_context_pack() -> str:
        """Mine."""
        return "mine"

    registry.agent("own", model=MODEL, vault=str(tmp_path), tools=[get_context_pack])
    (tool,) = known(registry).agents["own"].tools
    assert tool.description == "Mine."


@pytest.mark.parametrize("effect", [Effect.READ_ONLY, None])
def test_tool_of_that_name_serves_only_agents_that_have_it(tmp_path: Path, effect: Effect | None) -> None:
    """Beside it, the harness's own tools run for every other agent of the application."""
    script, docs = tmp_path / "script.jsonl", tmp_path / "docs"
    asked = {"big": {}, "read_artifact": {"id": "art_0"}, "get_context_pack": {"query": "refund"}}
    lines = [
        {"step": step, "content": [{"type": "tool_use", "id": "a", "name": name, "input": given}]}
        for step, (name, given) in enumerate(asked.items())
    ]
    lines.append({"step": len(asked), "content": [{"type": "text", "text": "Done."}]})
    script.write_text("\n".join(map(json.dumps, lines)))
    docs.mkdir()
    (docs / "refunds.md").write_text("A refund takes five days.")
    registry = Registry()

    @registry.tool(effect=Effect.READ_ONLY)
    def big() -> str:
        """More than the context takes."""
        return "x" * 300

    @registry.tool(effect=effect)
    def read_artifact(id: str, offset: int = 0, limit: int = 9) -> str:  # noqa: A002 - as the harness's own has it
        """Mine."""
        return f"mine: {id} {offset} {limit}"

    @registry.tool(effect=effect)
    def get_context_pack(query: str, limit: int = 4) -> str:
        """Mine."""
        return f"mine: {query} {limit}"

    model = f"scripted:{script}"
    registry.agent("has", model=model, vault=str(docs), tools=[big, read_artifact, get_context_pack])
    registry.agent("lacks", model=model, vault=str(docs), tools=[big])
    harness = AgentHarness(registry, Settings(artifact_threshold_chars=200))
    said = {
        name: [call.content for call in harness.run_turn(None, "A refund?", agent=name).calls[1:]]
        for name in ("has", "lacks")
    }
    harness.close()
    assert said["has"] == ["mine: art_0 0 9", "mine: refund 4"]
    assert said["lacks"][0].startswith("this session has no artifact art_0")
    assert "A refund takes five days." in said["lacks"][1]


def test_memory_alone_offers_no_tool() -> None:
    """Memories are given to the model, which cannot ask for them."""
    registry = Registry()
    registry.agent("guide", model=MODEL, memory=True)
    knowledge = known(registry)
    assert (knowledge.tools, tools(knowledge), knowledge.retriever is None) == ({}, {"guide": []}, False)


def test_agents_that_know_nothing_cost_nothing() -> None:
    """No retriever is loaded, and nothing is gathered for a turn."""
    code = (
        "import sys\n"
        "from harness_worker import AgentHarness, Registry\n"
        "registry = Registry(); registry.agent('a', model='scripted:x')\n"
        "harness = AgentHarness(registry)\n"
        "print('bm25s' in sys.modules, 'numpy' in sys.modules, harness._knowledge.gathering(None, None))"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert ran.stdout.split() == ["False", "False", "None"]


def test_missing_vault_is_refused_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the directory, and none is made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    registry = Registry()
    registry.agent("desk", model=MODEL, vault=str(tmp_path / "gone"))
    with pytest.raises(ConfigError, match=r"vault '.*gone': No such file or directory"):
        AgentHarness(registry)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ({"vault": ""}, "vault must be a directory's path, not ''"),
        ({"vault": 7}, "vault must be a directory's path, not 7"),
        ({"memory": 1}, "memory must be True, False or the name of the model that looks for it, not 1"),
        ({"show_citations": None}, "show_citations must be True or False, not None"),
    ],
)
def test_declaration_that_cannot_work_is_refused(words: dict[str, object], problem: str) -> None:
    """It is refused when it is made, with its name."""
    with pytest.raises(ConfigError, match=problem):
        Registry().agent("a", model=MODEL, **words)  # pyright: ignore[reportArgumentType]
