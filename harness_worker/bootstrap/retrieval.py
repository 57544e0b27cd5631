"""The retriever, loaded by those who need it: its libraries take half a second and 30 MB."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from harness_worker.ports import Retriever

_BM25: Final = "harness_worker.adapters.retrieval.bm25"


def make_retriever() -> Retriever:
    """Ranks texts by words in common."""
    return import_module(_BM25).Bm25Retriever()
