"""The contract of a retriever."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref

import pytest

from harness_worker.bootstrap.retrieval import make_retriever
from harness_worker.errors import ConfigError
from harness_worker.ports import Retriever

TEXTS = [
    "cancel_order: cancels an order that has not been shipped yet",
    "get_weather: today's forecast for a city",
    "refundPayment: gives the money of a payment back",
]


@pytest.fixture(scope="module", params=["bm25", "semantic"])
def retriever(request: pytest.FixtureRequest) -> Retriever:
    """A retriever; the test runs for each kind."""
    return make_retriever(semantic=request.param == "semantic")


@pytest.mark.parametrize(
    ("query", "position"),
    [("What is the weather like in the city?", 1), ("I want refunds for two payments", 2), ("orders cancelled", 0)],
)
def test_search_puts_the_text_that_fits_first(retriever: Retriever, query: str, position: int) -> None:
    """Words match whatever their endings, and inside names, too."""
    best = retriever.index(TEXTS).search(query, 3)[0]
    assert (best.position, best.score > 0) == (position, True)


def test_search_gives_the_best_first_and_no_more_than_asked(retriever: Retriever) -> None:
    """Scores descend, the limit is kept, and texts with equal scores keep their order."""
    index = retriever.index(["red apple pie", "red car", "red car", "blue boat"])
    found = index.search("a red apple", 10)
    assert [match.position for match in found][:3] == [0, 1, 2]
    assert [match.score for match in found] == sorted((match.score for match in found), reverse=True)
    assert index.search("a red apple", 1) == found[:1]


@pytest.mark.parametrize("query", ["", "the and of", "?!", "Überraschung", "\ud800"])
def test_search_for_nothing_known_finds_nothing(retriever: Retriever, query: str) -> None:
    """A query without a word in common with any text finds nothing, and raises nothing."""
    assert retriever.index(TEXTS).search(query, 3) == ()


def test_search_reads_only_both_ends_of_a_long_query() -> None:
    """What is asked stands before or after what a user pastes, and all of a megabyte would take seconds."""
    index, pasted = make_retriever().index(TEXTS), "lorem " * 100_000
    assert [match.position for match in index.search(f"weather {pasted} city {pasted} refund", 3)] == [1, 2]
    assert index.search(f"{pasted} weather {pasted}", 3) == ()


class Words(str):  # weakly referable, which a plain string is not
    """What a user says."""


def test_search_keeps_no_query_for_long(retriever: Retriever) -> None:
    """It is all that a user says, which may be megabytes: thousands of them would fill the process's memory."""
    index, query = retriever.index(TEXTS), Words("I want refunds for two payments")
    index.search(query, 1)
    kept = weakref.ref(query)
    del query
    for number in range(100):
        index.search(f"order {number}", 1)
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("texts", [[], [""], ["the", "…"]])
def test_search_among_nothing_finds_nothing(retriever: Retriever, texts: list[str]) -> None:
    """An index without texts, or of texts without words, can be searched like any other."""
    assert retriever.index(texts).search("order", 3) == ()


def test_search_by_threads_gives_each_its_own(retriever: Retriever) -> None:
    """Threads share an index, and each finds what it would find alone."""
    index, wrong = retriever.index(TEXTS), list[str]()
    expected = {text: index.search(text, 3) for text in TEXTS}

    def search() -> None:
        wrong.extend(text for text in TEXTS * 20 if index.search(text, 3) != expected[text])

    threads = [threading.Thread(target=search) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_semantic_retriever_finds_what_is_meant() -> None:
    """It finds a text even if there is no word in common."""
    index = make_retriever(semantic=True).index(TEXTS)
    assert [index.search(query, 1)[0].position for query in ("Will it rain tomorrow?", "reimburse me")] == [1, 2]


def test_retriever_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error's message says what to install."""
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    monkeypatch.delitem(sys.modules, "harness_worker.adapters.retrieval.minilm", raising=False)
    with pytest.raises(ConfigError, match=r"HARNESS_RETRIEVER=semantic: .*\.ci/install semantic"):
        make_retriever(semantic=True)


def test_retriever_is_loaded_by_who_needs_it_only() -> None:
    """A process that does not use one imports none of its libraries."""
    code = (
        "import sys, harness_worker.entrypoints.worker.run, harness_worker.bootstrap.retrieval as retrieval\n"
        "before = 'bm25s' in sys.modules\n"
        "retrieval.make_retriever()\n"
        "print(before, 'bm25s' in sys.modules, 'onnxruntime' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert ran.stdout.split() == ["False", "True", "False"]
