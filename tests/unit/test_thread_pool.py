"""A message whose task Celery itself cannot end is answered all the same."""

from __future__ import annotations

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
