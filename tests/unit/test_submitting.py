"""Taking a turn that a message asks for."""

from __future__ import annotations

from typing import Any, cast

import pytest

from harness_worker.core.registration.tools import AgentSpec
from harness_worker.errors import ConfigError
from harness_worker.turn.submitting import Submitting
from harness_worker.wire import Priority
from tests.unit.engine_kit import Engine
from tests.unit.memory_store import MemoryCatalogue

ASKED: dict[str, Any] = {"agent": "a", "input": "hello"}


def submitting_to(engine: Engine) -> Submitting:
    """Who stores turns of one agent in the engine's journal."""
    catalogue = MemoryCatalogue()
    catalogue.publish("app", [AgentSpec(name="a", model="m", system="s", tools=(), budget={"max_steps": 3})])
    dispatcher = cast("Any", engine.seen_sent)
    return Submitting(store=engine.store, catalogue=catalogue, dispatcher=dispatcher, longest_bytes=1_000)


@pytest.fixture
def engine() -> Engine:
    """An engine."""
    return Engine()


def test_turn_is_stored_before_anybody_is_told(engine: Engine) -> None:
    """With the agent's caps, for its tenant, in its own session unless it names one."""
    submitting = submitting_to(engine)
    submitting.submit("job-1", {**ASKED, "budget": {"max_steps": 9}, "tenant": "acme"}, Priority.BATCH)
    turn = engine.store.turns["job-1"]
    assert (turn.tenant, turn.session_id, turn.priority, turn.budget.max_steps) == ("acme", "job-1", "batch", 3)
    submitting.submit("job-2", {**ASKED, "session_id": "s", "metadata": None}, Priority.INTERACTIVE)
    assert engine.store.turns["job-2"].session_id == "s"


@pytest.mark.parametrize("turn_id", ["", "a/b", "a b", "{a}", "ü", "a" * 65, "a\n", ".", "..", "..."])
def test_id_that_cannot_stand_in_a_path_or_key_is_refused(engine: Engine, turn_id: str) -> None:
    """Nothing is stored."""
    with pytest.raises(ConfigError, match="the task's id becomes the turn's"):
        submitting_to(engine).submit(turn_id, ASKED, Priority.BATCH)
    assert turn_id not in engine.store.turns


@pytest.mark.parametrize("turn_id", ["a.", ".a", "..-", "_"])
def test_id_may_have_dots(engine: Engine, turn_id: str) -> None:
    """A dot may stand in an id beside other characters."""
    submitting_to(engine).submit(turn_id, ASKED, Priority.BATCH)
    assert turn_id in engine.store.turns


@pytest.mark.parametrize("name", ASKED)
def test_message_that_lacks_what_is_required_is_told_what(engine: Engine, name: str) -> None:
    """``None`` counts as left out."""
    others = {other: value for other, value in ASKED.items() if other != name}
    for asked in (others, {**others, name: None}):
        with pytest.raises(ConfigError, match=f"^{name} is missing: give agent and input, by name$"):
            submitting_to(engine).submit("job", asked, Priority.BATCH)


@pytest.mark.parametrize("name", ["webhook", "multitask", "priority"])
def test_what_only_http_takes_is_refused(engine: Engine, name: str) -> None:
    """The page on Celery messages says so: no producer waits for a webhook that never calls."""
    with pytest.raises(ConfigError, match=f"^there is no {name}: give agent, input, "):
        submitting_to(engine).submit("job", {**ASKED, name: None}, Priority.BATCH)
    assert "job" not in engine.store.turns


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"input": "a\0b"}, "input must not contain the character U+0000"),
        ({"input": "a\ud800"}, "input must not contain a lone surrogate"),
        ({"input": [{"type": "text", "text": "hi"}]}, "input must be a string, not list"),
        ({"session_id": 7}, "session_id must be a string, not int"),
        ({"session_id": ""}, "session_id must not be empty; None begins a new session"),
        ({"session_id": "s" * 256}, "session_id must have at most 255 characters, not 256"),
        ({"session_id": "s\0"}, "session_id must not contain the character U+0000"),
        ({"metadata": {"a": 1}}, "metadata['a'] must be a string, not int"),
        ({"metadata": {1: "a"}}, "metadata's key 1 must be a string, not int"),
        ({"metadata": {"a\0": "b"}}, "metadata's key 'a\\x00' must not contain the character U+0000"),
        ({"metadata": {"a": "\ud800"}}, "metadata['a'] must not contain a lone surrogate"),
        ({"metadata": {"a": "b" * 513}}, "metadata['a'] must have at most 512 characters, not 513"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata must have at most 16 pairs, not 17"),
        ({"metadata": ["a"]}, "metadata must be a dict of strings, not list"),
        ({"system_prompt_override": "\0"}, "system_prompt_override must not contain the character U+0000"),
        ({"skill_context": b"x"}, "skill_context must be a string, not bytes"),
        ({"parallel": "no"}, "parallel must be True or False, not 'no'"),
        ({"budget": {"max_steps": -1}}, "budget['max_steps'] must be a whole number, zero or more, not -1"),
        ({"input": 1, "parallel": 1}, "input must be a string, not int; parallel must be True or False, not 1"),
    ],
)
def test_option_that_makes_no_sense_is_refused(engine: Engine, options: dict[str, Any], problem: str) -> None:
    """All that is wrong is told at once, in the words for a turn of this process; nothing is stored."""
    with pytest.raises(ConfigError) as refused:
        submitting_to(engine).submit("job", {**ASKED, **options}, Priority.BATCH)
    assert str(refused.value) == problem
    assert "job" not in engine.store.turns


LONGEST: dict[str, Any] = {
    "agent": "a",
    "input": "ü" * 400,
    "system_prompt_override": "s" * 100,
    "skill_context": "s" * 100,
}


def test_turn_that_asks_with_too_much_is_refused(engine: Engine) -> None:
    """All its texts together have as many bytes as the body of a post may."""
    submitting = submitting_to(engine)
    submitting.submit("just", LONGEST, Priority.BATCH)
    for name in ("input", "system_prompt_override", "skill_context"):
        with pytest.raises(ConfigError, match="have 1001 bytes together, more than HARNESS_MAX_BODY_BYTES=1000"):
            submitting.submit("over", {**LONGEST, name: LONGEST[name] + "s"}, Priority.BATCH)
    assert "just" in engine.store.turns
    assert "over" not in engine.store.turns


@pytest.mark.parametrize("other", [{"input": "bye"}, {"tenant": "acme"}])
def test_id_of_another_turn_is_refused(engine: Engine, other: dict[str, Any]) -> None:
    """A producer that gives two jobs one id hears of it; one that sends a job again does not."""
    submitting = submitting_to(engine)
    for _ in range(2):
        submitting.submit("job", ASKED, Priority.BATCH)
    with pytest.raises(ConfigError, match="job is the id of another turn already"):
        submitting.submit("job", {**ASKED, **other}, Priority.BATCH)
    assert engine.store.turns["job"].input == "hello"
