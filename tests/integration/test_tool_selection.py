"""Tool selection with the real retriever: of twenty-six tools, those that fit the user's words are offered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness_worker import AgentHarness, Registry
from harness_worker.adapters.scripted.client import ScriptedModel
from harness_worker.ports import ModelReply, ModelRequest

TOPICS = (
    *("airport", "bakery", "bicycle", "bridge", "calendar", "camera", "carpet", "castle", "cinema", "clinic"),
    *("concert", "desert", "dolphin", "engine", "ferry", "garden", "guitar", "hammer", "harbour", "island"),
    *("jacket", "kitchen", "ladder", "museum", "orchestra", "parcel"),
)


@pytest.mark.parametrize(("limit", "expected"), [(25, 25), (3, 3), (None, 26)])
def test_tools_that_fit_are_offered(
    limit: int | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as wanted are offered, including those the words are about; without selection, all are."""
    seen: list[list[str]] = []
    complete = ScriptedModel.complete

    def watched(self: ScriptedModel, request: ModelRequest) -> ModelReply:
        seen.append([tool.name for tool in request.tools])
        return complete(self, request)

    monkeypatch.setattr(ScriptedModel, "complete", watched)
    script = tmp_path / "script.jsonl"
    script.write_text(json.dumps({"step": 0, "content": [{"type": "text", "text": "ok"}]}))
    registry = Registry()
    for topic in TOPICS:
        registry.add_tool(_nothing, name=f"book_{topic}", schema={"type": "object"}, description=f"For a {topic}.")
    registry.agent("clerk", model=f"scripted:{script}", tools=list(registry.tools), select_tools=limit)
    harness = AgentHarness(registry)
    harness.run_turn("s", "Which parcels came to the museums of the islands?")
    harness.run_turn("s", "And the guitar?")
    first, second = seen
    assert first == second
    assert len(first) == expected
    assert {"book_parcel", "book_museum", "book_island"} <= set(first)
    harness.close()


def _nothing(_arguments: dict[str, Any]) -> str:
    return ""
