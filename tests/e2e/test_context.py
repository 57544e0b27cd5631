"""Memory, vault and citations on a running fleet (docs/reference/memory.md, vault.md and citations.md)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness_worker.testing.waiting import wait_until
from tests.e2e.outsider import Json, Outsider, add_lines, call
from tests.e2e.workers import await_back, kill

PACK = call("get_context_pack", query="how long is a lamp kept?", limit=1)


@pytest.fixture
def user(outsider: Outsider, request: pytest.FixtureRequest) -> str:
    """A user that no other test has."""
    return f"{request.function.__name__}-{outsider.stack.home.parent.name}"


def ask(outsider: Outsider, words: str, *steps: Any, user: str | None = None, **options: object) -> str:  # noqa: ANN401
    """Post a user's words to the agent with memory and documents; returns the turn's id."""
    body = outsider.body(*steps, agent="knowing", **options)
    metadata = {**body["metadata"], **({"user": user} if user else {})}
    return outsider.http.post("/v1/turns", json={**body, "input": words, "metadata": metadata}).json()["id"]


def blocks(turn: Json) -> dict[str, str]:
    """The blocks that the model was sent before the user's words, by their tags."""
    return {text.partition("\n")[0].strip("<>"): text for text in turn["context"]}


def test_user_is_remembered_in_later_sessions(outsider: Outsider, user: str) -> None:
    """Facts are shown as memory, preferences with the documents; other users, and turns without one, get nothing."""
    outsider.end(ask(outsider, "Hello, my name is Ann. I prefer lamps.", "Hello.", user=user))
    again = blocks(outsider.end(ask(outsider, "What is my name?", "Ann.", user=user)))
    assert "- Hello, my name is Ann\n" in again["memory"]
    assert "<preferences>\n- I prefer lamps\n</preferences>" in again["untrusted_context"]
    for other in (f"{user}-2", None):
        shown = blocks(outsider.end(ask(outsider, "What is my name?", "Nobody knows.", user=other)))
        assert set(shown) == {"runtime_metadata"}


def test_session_is_remembered_without_a_user(outsider: Outsider, user: str) -> None:
    """What was said in a session is remembered in that session."""
    outsider.end(ask(outsider, "Remember that the gate code is 12.", "Yes.", session_id=user))
    turn = outsider.end(ask(outsider, "Which code?", "12.", session_id=user))
    assert "- the gate code is 12\n" in blocks(turn)["memory"]


def test_model_finds_memories_once_the_turn_is_over(outsider: Outsider, user: str) -> None:
    """After the turn, a coordinator asks a model what to remember; the user's later turns are shown what it found."""
    body = outsider.body("Hello.", agent="minding")
    note = {"memories": [{"kind": "fact", "text": f"is called {user}"}]}
    line = {"kind": "memory", "step": 0, "content": [{"type": "text", "text": json.dumps(note)}]}
    add_lines(outsider.directory, [{"script": body["metadata"]["script"], **line}])
    whose = {"metadata": {**body["metadata"], "user": user}}

    def is_known() -> bool:
        turn_id = outsider.http.post("/v1/turns", json={**body, **whose, "input": "They call me so."}).json()["id"]
        return f"- is called {user}\n" in blocks(outsider.end(turn_id)).get("memory", "")

    wait_until(is_known, "the model's memory to be shown", 60)


def test_documents_are_given_looked_up_and_cited(outsider: Outsider) -> None:
    """Documents come with the user's words and from a tool; only documents that were given are cited."""
    answer = "30 days [doc:refunds.md#1], a week [doc:refunds.md#2], never [doc:refunds.md#3]."
    turn = outsider.end(ask(outsider, "When is my money back?", [PACK], answer))
    block = blocks(turn)["untrusted_context"]
    assert (block.count("</untrusted_context>"), block.count("<document ")) == (1, 1)
    (looked_up,) = turn["calls"]
    assert (looked_up["outcome"], looked_up["effect"]) == ("ToolExecutionResult", "READ_ONLY")
    assert [(each["kind"], each["id"], each["title"]) for each in turn["citations"]] == [
        ("local", "refunds.md#1", "Refunds"),
        ("local", "refunds.md#2", "Lamps"),
    ]
    assert turn["citations"][1]["quote"] == "A lamp is kept for a week."
    assert outsider.events(turn["id"])[-1]["data"]["citations"] == turn["citations"]
    assert turn["decision"] == "retrieval_augmented"


def test_agent_with_documents_is_published_with_its_tool(outsider: Outsider) -> None:
    """``GET /v1/agents`` lists the documents' tool after the agent's own tools, and for no agent without documents."""
    agents = {agent["name"]: agent for agent in outsider.http.get("/v1/agents").json()["data"]}
    assert [tool["name"] for tool in agents["knowing"]["tools"]] == ["look", "get_context_pack"]
    assert "get_context_pack" not in [tool["name"] for tool in agents["worker"]["tools"]]


def test_context_outlives_the_coordinator(outsider: Outsider, user: str) -> None:
    """If the coordinator dies while a tool runs, the next one sends the same context and remembers the turn once."""
    slow = [call("look", n=1, s=2.0)]
    turn_id = ask(outsider, "I like lamps and money.", slow, "So [doc:refunds.md#1].", user=user)
    outsider.await_entry(turn_id, "0.0")
    before = outsider.turn(turn_id)["context"]
    await_back(outsider, "coordinator", kill(outsider, "coordinator"))
    turn = outsider.end(turn_id)
    assert (turn["status"], turn["context"]) == ("completed", before)
    assert [each["id"] for each in turn["citations"]] == ["refunds.md#1"]
    later = blocks(outsider.end(ask(outsider, "And now?", "Yes.", user=user)))
    assert later["untrusted_context"].count("- I like lamps and money\n") == 1
