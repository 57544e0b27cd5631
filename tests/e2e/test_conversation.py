"""A long conversation on two hosts, with everything that an agent can have."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from harness_worker.testing.waiting import wait_until
from tests.apps.conversation.app import inventory, statement
from tests.e2e.conversation import RECORDED, Conversation, open_conversation
from tests.e2e.outsider import Json

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(400)]

TURNS = 20


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Generator[Conversation]:
    """The conversation, after its last turn has ended."""
    with open_conversation(tmp_path_factory.mktemp("hosts")) as conversation:
        conversation.hold()
        yield conversation


def test_conversation_goes_as_recorded(held: Conversation) -> None:
    """Every event of every turn is as recorded, but for ids, times and workers.

    ``python -m tests.e2e.conversation`` records the events anew.
    """
    assert {turn["status"] for turn in held.turns} == {"completed"}
    assert held.log() == RECORDED.read_text().splitlines()


def test_artifacts_of_one_host_are_read_on_the_other(held: Conversation) -> None:
    """The model reads artifacts through a tool process of the other host; HTTP gives the same bytes."""
    stored = _workers(held, "ToolArtifactReference", "statement")
    read = _workers(held, "ToolExecutionResult", "read_artifact")
    assert (len(stored), len(read), stored & read) == (1, 1, set())
    answers = [held.outsider.http.get(f"/v1/artifacts/{artifact_id}") for artifact_id in held.artifacts]
    assert [answer.text for answer in answers] == [statement(2025), statement(2024), inventory()]


def test_user_is_remembered_to_the_end(held: Conversation) -> None:
    """What the user said in the first turn is given to the last but one, after two summaries of the history."""
    memory = next(text for text in held.turns[18]["context"] if text.startswith("<memory>"))
    assert "- Hello, my name is Ann\n" in memory


def test_every_turn_is_judged(held: Conversation) -> None:
    """Each of the agent's two judges scores each turn once."""

    def scores() -> list[list[Json]] | None:
        get = held.outsider.http.get
        found: list[list[Json]] = [get(f"/v1/turns/{turn['id']}/scores").json()["data"] for turn in held.turns]
        return found if all(score["at"] for each in found for score in each) else None

    judged = wait_until(scores, "the judges to speak", 60, interval_s=0.5)
    assert [sorted(score["judge"] for score in each) for each in judged] == [["calls", "relevance"]] * TURNS
    assert not [score for each in judged for score in each if score["error"]]


def _workers(held: Conversation, outcome: str, tool: str) -> set[str]:
    """The workers that ran those calls of a tool that had this outcome."""
    calls = [each for turn in held.turns for each in turn["calls"]]
    return {each["worker"].rpartition("/")[0] for each in calls if (each["tool"], each["outcome"]) == (tool, outcome)}
