"""What is remembered of a user's words. By rules: what they ask to be remembered, who they are, what they like.

A memory belongs to whoever said it: to the user whom the turn's metadata names (``user``), in all sessions of the
tenant; without one to the session alone, for nothing is shared between sessions that nobody says belong together.
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
"""So much of a user's words is searched: it is done in the commit that ends the turn."""

SENTENCE_CHARS: Final = 500
"""A longer sentence is no statement about anybody; it is not searched."""


class MemoryKind(StrEnum):
    """A fact is shown when it fits a turn's words, a preference always."""

    FACT = "fact"
    PREFERENCE = "preference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Something that a user said: in their own words, or as a model put it."""

    kind: MemoryKind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What is remembered of a turn, in order."""

    turn: Turn
    memories: tuple[Memory, ...]


_SENTENCE: Final = re.compile(r"[^.!?\n]+(?:[.!?](?!\s|$)[^.!?\n]*)*[.!?]?")
_NO_REQUEST: Final = (r"\bI", r"\byou", r"\bwe", r"\bthey", "'ll", "n't", "cannot", "never", r"\bnot", r"\bnot to")
"""Words after which nothing is asked for: who remembers something, or does not, only says so."""

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
    """What a user's words give to remember, in order, each once; questions give nothing."""
    searched = text[:SEARCHED_CHARS]
    sentences = (sentence.strip() for sentence in _SENTENCE.findall(searched) if len(sentence) <= SENTENCE_CHARS)
    found = (_memory(sentence) for sentence in sentences if not sentence.endswith("?"))
    return tuple(dict.fromkeys(memory for memory in found if memory is not None))[:MOST_A_TURN]


def scope_of(turn: Turn) -> str:
    """Whose memories a turn reads and adds to, within its tenant."""
    user = turn.metadata.get(USER_KEY)
    return user_scope(user) if user else session_scope(turn.session_id)


def user_scope(user: str) -> str:
    """What belongs to a user of the tenant, in whatever session they said it."""
    return f"user:{user}"


def session_scope(session_id: str) -> str:
    """What belongs to a session of nobody who was named."""
    return f"session:{session_id}"


def preferences_of(memories: Iterable[Memory]) -> tuple[str, ...]:
    """The preferences, the first ones."""
    return _texts(memories, MemoryKind.PREFERENCE)[:MOST_PREFERENCES]


def facts_of(memories: Iterable[Memory]) -> tuple[str, ...]:
    """All facts."""
    return _texts(memories, MemoryKind.FACT)


def chosen_facts(facts: Sequence[str], fitting: Iterable[int]) -> tuple[str, ...]:
    """The facts to show: those that fit, best first, then the others in order.

    Args:
        facts: Newest first.
        fitting: The places of those that fit the turn's words.
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
