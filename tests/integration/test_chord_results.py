"""Sending a canvas waits neither for its results, nor for the Redis that would join a chord."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest
from redis import Redis

from harness_worker.adapters.celery.app import CHORD_RESULT_TTL_S, make_app
from harness_worker.adapters.celery.dispatcher import CeleryDispatcher
from harness_worker.adapters.embedded.ports import free_port
from harness_worker.bootstrap.engine import timing_of
from harness_worker.config import load_settings
from tests.unit.builders import a_call, a_turn, a_write

TURNS = 20


def test_nothing_that_is_sent_is_subscribed_to(redis_url: str) -> None:
    """This also holds outside of a task, as in the reconciler; nobody would read what arrives."""
    settings = load_settings(redis_url=redis_url)
    dispatcher = CeleryDispatcher(make_app(settings, redis_url=redis_url), timing=timing_of(settings))
    turn, reads, writes = a_turn(), [a_call(0), a_call(1)], [a_write(0), a_write(1)]
    for _ in range(TURNS):
        dispatcher.advance(turn.id, turn.priority)
        dispatcher.chord(turn, reads)
        dispatcher.chain(turn, writes)
    with Redis.from_url(redis_url) as redis:  # pyright: ignore[reportUnknownMemberType] - its **kwargs are untyped
        seen: Any = redis
        assert seen.llen("tools") == 3 * TURNS
        assert [client["sub"] for client in seen.client_list() if client["sub"] != "0"] == []
        sizes = list(seen.scan_iter("*.s"))
        assert len(sizes) == TURNS
        assert all(0 < seen.ttl(key) <= CHORD_RESULT_TTL_S for key in sizes), "a chord that is lost leaves nothing"


def test_call_goes_to_the_queue_that_its_tool_has_now(redis_url: str) -> None:
    """A turn may wait for a person across a deployment, after which no worker may serve the planned queue."""
    settings = load_settings()
    app = make_app(settings, redis_url=redis_url)
    dispatcher = CeleryDispatcher(app, timing=timing_of(settings), queues={"moved": "new"})
    dispatcher.chain(a_turn(), [a_call(0, tool="moved", queue="old")])
    dispatcher.chain(a_turn(), [a_call(0, tool="gone", queue="old")])
    with Redis.from_url(redis_url) as redis:  # pyright: ignore[reportUnknownMemberType] - its **kwargs are untyped
        seen: Any = redis
        assert (seen.llen("new"), seen.llen("old")) == (1, 1)


def test_chord_that_redis_cannot_join_is_left_to_the_reconciler_at_once(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """If only the Redis beside another broker is away, the coordinator neither waits for it nor fails."""
    settings = load_settings()
    app = make_app(settings, redis_url=f"redis://127.0.0.1:{free_port()}/0", broker_url=redis_url)
    dispatcher, began = CeleryDispatcher(app, timing=timing_of(settings)), monotonic()
    dispatcher.chord(a_turn(), [a_call(0), a_call(1)])
    assert monotonic() - began < 15.0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "not sent, the reconciler will" in caplog.text
