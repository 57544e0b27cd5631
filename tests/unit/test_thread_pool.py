"""A message whose task Celery itself cannot end is answered all the same."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from celery.exceptions import Ignore, Reject
from redis.exceptions import ResponseError

from harness_worker.adapters.celery import thread_pool
from harness_worker.adapters.celery.thread_pool import AnsweringThreads


def refuse(_: threading.Thread) -> None:
    """Refuse a thread, as a system does that has too many."""
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("escaped", "answer"),
    [
        (KeyError("msgpack"), Ignore),
        (TypeError("unhashable"), Ignore),
        (ResponseError("NOPERM"), Reject),
        (Reject(ResponseError("NOPERM"), requeue=True), Reject),
        (MemoryError(), Reject),
    ],
)
def test_what_escapes_celery_is_an_answer(
    escaped: Exception, answer: type[Exception], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What may pass has the message come again, anything else ends it; the next one finds a thread."""
    monkeypatch.setattr(thread_pool, "AWAY_S", 0.0)
    answers: list[Any] = []
    pool: Any = AnsweringThreads(1)

    def fail() -> None:
        raise escaped

    pool.on_apply(fail, callback=answers.append, error_callback=answers.append)
    done = pool.on_apply(lambda: (0, "done"), callback=answers.append, error_callback=answers.append)
    done.get()
    pool.on_stop()
    told, result = answers
    said = told.exception.exc  # billiard wraps it
    assert (type(said), result) == (answer, (0, "done"))
    assert getattr(said, "requeue", False) is (answer is Reject)
    assert type(getattr(escaped, "reason", escaped)).__name__ in caplog.text


@pytest.mark.parametrize("escaped", [asyncio.CancelledError(), BaseException("of a library")])
def test_message_is_answered_though_what_is_no_exception_escapes(escaped: BaseException) -> None:
    """Such as where it is acknowledged: Celery itself hands over only what the task raises."""
    answers: list[Any] = []
    pool: Any = AnsweringThreads(1)

    def fail(_: object) -> None:
        raise escaped

    pool.on_apply(lambda: (0, "done"), callback=fail, error_callback=answers.append)
    pool.on_stop()
    (told,) = answers
    assert isinstance(told.exception.exc, Ignore)  # billiard wraps it


def test_task_that_no_thread_could_be_started_for_runs_in_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error would end the worker, which would take no other turn until its last running one has ended."""
    answers: list[Any] = []
    pool: Any = AnsweringThreads(2)
    begun, free = threading.Event(), threading.Event()

    def call_the_model() -> tuple[int, str]:
        begun.set()
        free.wait(30)
        return 0, "first"

    pool.on_apply(call_the_model, callback=answers.append)
    begun.wait(30)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        pool.on_apply(lambda: (0, "second"), callback=answers.append)
    free.set()
    pool.on_apply(lambda: (0, "third"), callback=answers.append).get()
    pool.on_stop()
    assert sorted(answers) == [(0, "first"), (0, "second"), (0, "third")]


def test_worker_that_gets_no_thread_at_all_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends, for another one to begin: nobody would run what it takes."""
    pool: Any = AnsweringThreads(1)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        pool.on_apply(lambda: (0, "done"))


def test_pool_that_has_stopped_refuses_a_task() -> None:
    """It has threads still, but none that would run it."""
    answers: list[Any] = []
    pool: Any = AnsweringThreads(1)
    pool.on_apply(lambda: (0, "done"), callback=answers.append).get()
    pool.on_stop()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.on_apply(lambda: (0, "late"), callback=answers.append)
    assert answers == [(0, "done")]
