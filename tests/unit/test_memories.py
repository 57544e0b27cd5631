"""What is worth remembering of a user's words, and whose it is."""

from __future__ import annotations

import pytest

from harness_worker.core.memory.memories import (
    MEMORY_CHARS,
    MOST_A_TURN,
    Memory,
    MemoryKind,
    chosen_facts,
    facts_of,
    memories_in,
    preferences_of,
    scope_of,
)
from tests.unit.builders import a_turn


def fact(text: str) -> Memory:
    """A fact."""
    return Memory(kind=MemoryKind.FACT, text=text)


def preference(text: str) -> Memory:
    """A preference."""
    return Memory(kind=MemoryKind.PREFERENCE, text=text)


@pytest.mark.parametrize(
    ("said", "remembered"),
    [
        ("My name is Ann.", [fact("My name is Ann")]),
        ("Hi! I live in Berlin. Where is my order?", [fact("I live in Berlin")]),
        ("Please remember that the gate code is 12.5, thanks!", [fact("the gate code is 12.5, thanks")]),
        ("remember: I don't eat meat", [fact("I don't eat meat")]),
        ("I prefer   window seats\nand call me Bo", [preference("I prefer window seats"), fact("and call me Bo")]),
        ("Remember that I never fly on Mondays.", [preference("I never fly on Mondays")]),
        ("My favourite colour is green!", [preference("My favourite colour is green")]),
        ("I really don't like spam. I really don't like spam.", [preference("I really don't like spam")]),
        ("My work e-mail is ann@example.org.", [fact("My work e-mail is ann@example.org")]),
        ("Would you please remember that the door is blue.", [fact("the door is blue")]),
        ("I want you to keep in  mind that it is late.", [fact("it is late")]),
        ("Don\u2019t forget: the gate sticks.", [fact("the gate sticks")]),
        ("I don\u2019t like spam", [preference("I don't like spam")]),
        ("Do you remember that I like tea?", []),
        ("I don't remember that you ever called me.", []),
        ("I can\u2019t  remember that meeting.", []),
        ("I remember that meeting, and you asked not to remember that. I'll keep in mind that it was long.", []),
        ("I would like a refund. My order is late. I want it now!", []),
        ("Remember to smile", []),
        ("remember that .", []),
        ("", []),
    ],
)
def test_memories_are_what_the_rules_say(said: str, remembered: list[Memory]) -> None:
    """Statements of the user about themselves, and what they ask to be remembered; no questions, no wishes."""
    assert list(memories_in(said)) == remembered


def test_memories_are_few_and_short() -> None:
    """At most eight a turn, of 300 characters; a sentence without an end gives nothing, and takes no time."""
    many = memories_in(" ".join(f"Remember that {n} is a number." for n in range(20)))
    assert [memory.text for memory in many] == [f"{n} is a number" for n in range(MOST_A_TURN)]
    assert len(memories_in(f"Remember that {'x' * 400}")[0].text) == MEMORY_CHARS
    assert memories_in("my favourite is " * 100_000) == ()


def test_scope_is_the_user_or_else_the_session() -> None:
    """A user named by the metadata is the same in all sessions; without one nothing leaves the session."""
    assert scope_of(a_turn(metadata={"user": "ann"})) == "user:ann"
    assert scope_of(a_turn(metadata={"user": ""})) == "session:session"
    assert scope_of(a_turn(session_id="ann")) == "session:ann"


def test_facts_that_fit_come_first() -> None:
    """Then the newest; eight at most, each once."""
    facts = [f"fact {n}" for n in range(10)]
    assert chosen_facts(facts, [9, 3]) == ("fact 9", "fact 3", *(f"fact {n}" for n in (0, 1, 2, 4, 5, 6)))
    assert chosen_facts((), ()) == ()


def test_preferences_and_facts_are_told_apart() -> None:
    """Each text once, in order."""
    memories = [preference("tea"), fact("Ann"), preference("tea"), preference("milk")]
    assert (preferences_of(memories), facts_of(memories)) == (("tea", "milk"), ("Ann",))
