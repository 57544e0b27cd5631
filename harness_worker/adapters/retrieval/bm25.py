"""``ports.Retriever`` by BM25: words in common, of which rare ones count most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import bm25s  # pyright: ignore[reportMissingTypeStubs] - bm25s has no types

from harness_worker.adapters.retrieval.terms import searched, terms
from harness_worker.ports import Match


class Bm25Retriever:
    """Finds texts that share a word with the query, whatever its ending."""

    def index(self, texts: Sequence[str]) -> Bm25Index:
        """Make the texts searchable."""
        return Bm25Index([terms(text) for text in texts])


class Bm25Index:
    """Implements ``ports.TextIndex``; immutable.

    Args:
        corpus: The terms of each text.
    """

    def __init__(self, corpus: Sequence[list[str]]) -> None:
        self._scorer: Any = None
        if any(corpus):
            self._scorer = bm25s.BM25()
            self._scorer.index(corpus, show_progress=False)

    def search(self, query: str, limit: int) -> tuple[Match, ...]:
        """The texts that share a term with the query, best first; equally good ones in their order."""
        wanted = terms(searched(query))
        if self._scorer is None or not wanted:
            return ()
        scores = enumerate(self._scorer.get_scores(wanted).tolist())
        found = [Match(position=position, score=score) for position, score in scores if score > 0]
        return tuple(sorted(found, key=lambda match: -match.score)[:limit])
