"""The terms that a text is found by: its words, stemmed, without stop words; and what is searched for of a query."""

from __future__ import annotations

import re
from typing import Any, Final

import Stemmer
from bm25s.stopwords import STOPWORDS_EN_PLUS  # pyright: ignore[reportMissingTypeStubs] - bm25s has no types

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+|[^\W\d_]+")
_STOPWORDS: Final = frozenset(STOPWORDS_EN_PLUS)

QUERY_CHARS: Final = 10_000
"""How much of a query is searched for, in characters: a megabyte of what a user pasted would take seconds."""


def terms(text: str) -> list[str]:
    """The terms of a text in order; ``get_order`` and ``getOrder`` are two words each."""
    words = [word.casefold() for word in _WORD.findall(text)]
    return _stemmed([word for word in words if word not in _STOPWORDS])


def searched(query: str) -> str:
    """What is searched for: all of a query, or the beginning and the end of a long one, where the request itself is."""
    half = QUERY_CHARS // 2
    return query if len(query) <= QUERY_CHARS else f"{query[:half]} {query[-half:]}"


def _stemmed(words: list[str]) -> list[str]:
    # A stemmer for each call, because it has a cache and no lock.
    untyped: Any = Stemmer
    return list(untyped.Stemmer("english").stemWords(words))
