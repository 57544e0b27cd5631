"""The retriever, loaded only if needed: its libraries take half a second and tens of megabytes."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from harness_worker.bootstrap.extras import installing
from harness_worker.errors import ConfigError
from harness_worker.ports import Retriever

_BM25: Final = "harness_worker.adapters.retrieval.bm25"
_MINILM: Final = "harness_worker.adapters.retrieval.minilm"


def make_retriever(*, semantic: bool = False) -> Retriever:
    """Ranks texts by words in common, or by meaning.

    Raises:
        ConfigError: The packages for ranking by meaning are not installed.
    """
    if not semantic:
        return import_module(_BM25).Bm25Retriever()
    try:
        return import_module(_MINILM).MiniLmRetriever()
    except ImportError as missing:
        raise ConfigError(f"HARNESS_RETRIEVER=semantic: {missing}; {installing('semantic')}") from None
