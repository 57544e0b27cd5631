"""What a tenant may ask for: who is refused, with what words, and who is not."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import httpx2
import openai
import pytest
from openai import OpenAI

from tests.integration.gateway_kit import AGENT, NOWHERE, Gateway, gateway_on, own_db, problem_of

Serving: TypeAlias = Callable[..., Any]
"""Serves a gateway with the given settings; a context manager."""


@pytest.fixture
def serve(database_url: str, valkey_url: str) -> Serving:
    """Gateways on each kind of database; nobody hears their wake-ups."""
    return partial(gateway_on, database_url, NOWHERE, own_db(valkey_url))


@contextmanager
def openai_client(gateway: Gateway, *, max_retries: int = 0) -> Generator[OpenAI]:
    """The official client."""
    with httpx2.Client(trust_env=False) as http:
        yield OpenAI(base_url=f"{gateway.url}/v1", api_key="any", http_client=http, max_retries=max_retries)


def ask(client: OpenAI) -> Any:  # noqa: ANN401 - its type says nothing here
    """Ask for a response that nobody waits for."""
    create: Any = client.responses.create
    return create(model=AGENT, input="Where is it?", background=True)


def test_full_queue_takes_no_other_turn_until_one_has_ended(serve: Serving) -> None:
    """Queued and running turns count; the refused post is told when to come again, and leaves nothing."""
    with serve(tenant_queue=2) as gateway:
        first, second = gateway.posted(), gateway.posted()
        gateway.worker.change(second["id"], status="running")
        refused = gateway.post()
        problem = problem_of(refused, 429, "queue_full")
        assert problem["detail"].startswith("2 turns of this tenant are queued or running")
        assert int(refused.headers["retry-after"]) >= 1
        assert gateway.ids() == [second["id"], first["id"]]
        gateway.worker.finish(first["id"])
        assert gateway.post().status_code == 202


def test_turns_that_wait_for_a_person_do_not_count(serve: Serving) -> None:
    """They hold no worker, and may wait for a day."""
    with serve(tenant_queue=1) as gateway:
        gateway.worker.change(gateway.posted()["id"], status="requires_action")
        assert gateway.post().status_code == 202


def test_other_tenants_turns_do_not_count(serve: Serving) -> None:
    """Each has a queue of its own."""
    with serve(tenant_queue=1) as gateway:
        gateway.worker.change(gateway.posted()["id"], tenant="another")
        assert gateway.post().status_code == 202
        assert gateway.post().status_code == 429


def test_repeat_is_answered_though_the_queue_is_full(serve: Serving) -> None:
    """Its turn is there already."""
    with serve(tenant_queue=1) as gateway:
        first = gateway.post(key="once")
        repeat = gateway.post(key="once")
        assert (repeat.status_code, repeat.json()["id"]) == (202, first.json()["id"])


def test_refused_post_does_not_use_its_key_up(serve: Serving) -> None:
    """The same request makes its turn once there is room."""
    with serve(tenant_queue=1) as gateway:
        first = gateway.posted()
        problem_of(gateway.post(key="later"), 429, "queue_full")
        gateway.worker.finish(first["id"])
        assert gateway.post(key="later").status_code == 202


def test_wrong_request_is_told_so_though_the_queue_is_full(serve: Serving) -> None:
    """Waiting would not help it."""
    with serve(tenant_queue=1) as gateway:
        gateway.posted()
        problem_of(gateway.post(agent="nobody"), 404, "unknown_agent")


def test_posts_at_once_overshoot_by_no_more_than_their_number(serve: Serving) -> None:
    """Those who post together may not see each other; whoever comes after them does."""
    with serve(tenant_queue=3) as gateway:
        gateway.posted()
        with ThreadPoolExecutor(4) as threads:
            codes = [each.result().status_code for each in [threads.submit(gateway.post) for _ in range(12)]]
        assert set(codes) == {202, 429}
        assert 2 <= codes.count(202) <= 2 + 4
        assert gateway.post().status_code == 429


def test_openai_client_is_told_that_the_queue_is_full(serve: Serving) -> None:
    """As OpenAI tells those who ask for too much: its class of error, which the client tries again."""
    with serve(tenant_queue=1) as gateway, openai_client(gateway) as client:
        ask(client)
        with pytest.raises(openai.RateLimitError) as refused:
            ask(client)
        assert (refused.value.code, refused.value.type) == ("queue_full", "rate_limit_exceeded")
        assert int(refused.value.response.headers["retry-after"]) >= 1
