"""What is remembered of a user's words, found by rules: what they ask to be remembered, who they are, what they like.

A memory belongs to the user named in the turn's metadata (``user``), in all sessions of the tenant. Without a user it
belongs to the session alone, because nothing says that two sessions belong to the same person.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Final

from harness_worker.core.records import Turn

USER_KEY: Final = "user"
MOST_A_TURN: Final = 8
MOST_FACTS: Final = 8
MOST_PREFERENCES: Final = 8
MEMORY_CHARS: Final = 300
SEARCHED_CHARS: Final = 50_000
"""How much of a user's words is searched, in characters; limited because the commit that ends the turn waits for it."""

SENTENCE_CHARS: Final = 500
"""A longer sentence, in characters, is unlikely to be a statement about the user, and is not searched."""


class MemoryKind(StrEnum):
    """A fact is shown if it fits a turn's words, a preference always."""

    FACT = "fact"
    PREFERENCE = "preference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Something that a user said, in their own words or as a model put it."""

    kind: MemoryKind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What is remembered of a turn, in order."""

    turn: Turn
    memories: tuple[Memory, ...]


_SENTENCE: Final = re.compile(r"[^.!?\n]+(?:[.!?](?!\s|$)[^.!?\n]*)*[.!?]?")
_NO_REQUEST: Final = (r"\bI", r"\byou", r"\bwe", r"\bthey", "'ll", "n't", "cannot", "never", r"\bnot", r"\bnot to")
"""Words after which "remember" is no request: "I remember that …" only states something."""

_ASKED: Final = re.compile(
    rf"{''.join(f'(?<!{words} )' for words in _NO_REQUEST)}"
    r"\b(?:remember|don'?t forget|keep in mind)(?:\s*:|\s+that\b)\s*(?P<what>.+)",
    re.IGNORECASE,
)
_LIKES: Final = re.compile(
    r"\bI\s+(?:(?:really|always|usually|generally|much)\s+)*(?:do\s+not\s+|don'?t\s+|never\s+)?"
    r"(?:prefer|like|love|hate|dislike|enjoy)\b"
    r"|\bI\s+(?:always|never|usually)\s+\w+"
    r"|\bmy\s+(?:favou?rite|preferred)\b.+\b(?:is|are)\b",
    re.IGNORECASE,
)
_IS: Final = re.compile(
    r"\bmy\s+(?:\w+\s+)?(?:name|birthday|address|e-?mail|phone(?:\s+number)?|time\s?zone|language|pronouns|job)\s+(?:is|are)\b"
    r"|\bcall\s+me\s+\w+|\bI(?:'m|\s+am)\s+(?:called|from|allergic)\b|\bI\s+(?:live|work)\s+(?:in|at|as|for)\b",
    re.IGNORECASE,
)


def memories_in(text: str) -> tuple[Memory, ...]:
    """The memories in a user's words, in order, each once; questions contain none."""
    searched = text[:SEARCHED_CHARS]
    sentences = (sentence.strip() for sentence in _SENTENCE.findall(searched) if len(sentence) <= SENTENCE_CHARS)
    found = (_memory(sentence) for sentence in sentences if not sentence.endswith("?"))
    return tuple(dict.fromkeys(memory for memory in found if memory is not None))[:MOST_A_TURN]


def scope_of(turn: Turn) -> str:
    """Whose memories a turn reads and adds to, within its tenant."""
    user = turn.metadata.get(USER_KEY)
    return user_scope(user) if user else session_scope(turn.session_id)


def user_scope(user: str) -> str:
    """The scope of a user of the tenant, whatever the session."""
    return f"user:{user}"


def session_scope(session_id: str) -> str:
    """The scope of a session without a named user."""
    return f"session:{session_id}"


def preferences_of(memories: Iterable[Memory]) -> tuple[str, ...]:
    """The texts of the preferences, up to a maximum number."""
    return _texts(memories, MemoryKind.PREFERENCE)[:MOST_PREFERENCES]


def facts_of(memories: Iterable[Memory]) -> tuple[str, ...]:
    """The texts of all facts."""
    return _texts(memories, MemoryKind.FACT)


def chosen_facts(facts: Sequence[str], fitting: Iterable[int]) -> tuple[str, ...]:
    """The facts to show: those that fit, best first, then the others in order.

    Args:
        facts: The facts, newest first.
        fitting: The indexes of those that fit the turn's words, best first.
    """
    return tuple(dict.fromkeys(chain((facts[place] for place in fitting), facts)))[:MOST_FACTS]


def _texts(memories: Iterable[Memory], kind: MemoryKind) -> tuple[str, ...]:
    return tuple(dict.fromkeys(memory.text for memory in memories if memory.kind is kind))


def _memory(sentence: str) -> Memory | None:
    words = " ".join(sentence.split()).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    asked = _ASKED.search(words)
    text = (asked["what"] if asked else words).rstrip(".!")[:MEMORY_CHARS].strip()
    if _LIKES.search(text):
        return Memory(kind=MemoryKind.PREFERENCE, text=text)
    return Memory(kind=MemoryKind.FACT, text=text) if text and (asked or _IS.search(text)) else None
