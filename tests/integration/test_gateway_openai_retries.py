"""The official ``openai`` client retries failed requests by itself, but never one that may have made a turn."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tests.integration.gateway_kit import Gateway
from tests.integration.openai_kit import Client, client_of, the_turn
from tests.relay import Relay


@pytest.fixture
def database_url(line: Relay) -> str:
    """A database to which the connections can be broken."""
    return line.url


@pytest.fixture
def client(gateway: Gateway) -> Generator[Client]:
    """The client of that gateway."""
    with client_of(gateway.url) as client:
        yield client


@pytest.mark.parametrize("ask", [Client.chat, Client.respond])
def test_request_whose_commit_is_not_answered_is_not_repeated(
    gateway: Gateway, line: Relay, client: Client, ask: Callable[[Client], object]
) -> None:
    """The turn is stored, which the gateway cannot know: a retry would run a second one."""
    line.break_at(b"COMMIT")
    with pytest.raises(openai.InternalServerError, match="look for it with GET /v1/turns") as raised:
        ask(client)
    assert (raised.value.status_code, raised.value.code) == (503, "not_ready")
    assert "retry-after" not in raised.value.response.headers
    assert (len(client.requests), len(gateway.ids())) == (1, 1)


def test_request_with_a_key_whose_commit_is_not_answered_is_repeated(
    gateway: Gateway, line: Relay, client: Client
) -> None:
    """With an idempotency key the retry finds the turn."""
    line.break_at(b"COMMIT")
    response = client.respond(background=True, extra_headers={"Idempotency-Key": "k"})
    assert (len(client.requests), gateway.ids()) == (2, [response.id])


def test_request_that_made_nothing_is_repeated(gateway: Gateway, line: Relay, client: Client) -> None:
    """The transaction failed before its commit, so a retry is safe."""
    line.break_at(b"INSERT INTO turns")
    response = client.respond(background=True)
    assert (len(client.requests), gateway.ids()) == (2, [response.id])


def test_request_that_meets_a_bug_behind_its_commit_is_not_repeated(
    gateway: Gateway, client: Client, pool: ThreadPoolExecutor
) -> None:
    """The bug here is a gateway that cannot read its own turn."""
    asking = pool.submit(client.respond)
    turn_id = the_turn(gateway)
    gateway.worker.change(turn_id, status="of a later version")
    gateway.worker.event(turn_id, "turn.completed")
    with pytest.raises(openai.InternalServerError, match="look for it with GET /v1/turns") as raised:
        asking.result(30)
    assert (raised.value.status_code, raised.value.code, len(client.requests)) == (500, "internal", 1)
