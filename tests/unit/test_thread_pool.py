"""A message whose task Celery itself cannot end is answered all the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from celery.exceptions import Ignore, Reject
from redis.exceptions import ResponseError

from harness_worker.adapters.celery import thread_pool
from harness_worker.adapters.celery.thread_pool import AnsweringThreads


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
