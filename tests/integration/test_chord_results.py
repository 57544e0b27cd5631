"""Who sends a canvas waits for none of its results."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from redis import Redis

from harness_worker.adapters.celery.app import make_app
from harness_worker.adapters.celery.dispatcher import CeleryDispatcher
from harness_worker.bootstrap.engine import timing_of
from harness_worker.config import load_settings
from harness_worker.testing.services import valkey_service
from tests.unit.builders import a_call, a_turn, a_write

TURNS = 20


@pytest.fixture
def redis_url() -> Generator[str]:
    """A Valkey of its own."""
    with valkey_service() as url:
        yield url


def test_nothing_that_is_sent_is_subscribed_to(redis_url: str) -> None:
    """Not from outside a task either, as the reconciler sends: nobody would read what comes."""
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
