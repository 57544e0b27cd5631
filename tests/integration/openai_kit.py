"""The official ``openai`` client for tests, which counts its requests."""

# ruff: noqa: ANN401 - options of the client and answers are any JSON
from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import httpx2
from openai import OpenAI

from harness_worker.testing.waiting import wait_until
from tests.integration.gateway_kit import AGENT, Gateway

ASKED: Final[Any] = [{"role": "user", "content": "Where is it?"}]


class Client:
    """The official client with its retries, and the requests that it made."""

    def __init__(self, url: str, http: httpx2.Client, **options: Any) -> None:
        self.requests: list[httpx2.Request] = []
        http.event_hooks = {"request": [self.requests.append]}
        self.openai = OpenAI(base_url=f"{url}/v1", api_key="anything", http_client=http, **options)

    def chat(self, **options: Any) -> Any:
        """Ask for a completion."""
        create: Any = self.openai.chat.completions.create
        return create(model=AGENT, messages=ASKED, **options)

    def respond(self, **options: Any) -> Any:
        """Ask for a response."""
        create: Any = self.openai.responses.create
        return create(**{"model": AGENT, "input": "Where is it?", **options})


@contextmanager
def client_of(url: str, **options: Any) -> Generator[Client]:
    """A client of that gateway; it gives up sooner than a user's, so that a failing test ends soon."""
    with httpx2.Client(trust_env=False) as http:
        yield Client(url, http, **{"timeout": 10.0, **options})


def the_turn(gateway: Gateway) -> str:
    """The only turn there is, once its wake-up was sent; by then a request waits for it."""

    def found() -> str | None:
        ids = gateway.ids()
        return ids[0] if ids and gateway.worker.wake_ups(ids[0]) else None

    turn_id = wait_until(found, "the turn and its wake-up")
    assert turn_id is not None
    return turn_id
