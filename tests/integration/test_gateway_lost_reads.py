"""Writes are answered as done even if the database goes away right after the commit: no client may repeat them."""

# ruff: noqa: ANN401 - columns, bodies and answers are any JSON
from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import httpx2
import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from api_gateway.app import create_app
from api_gateway.database import writer_of
from harness_worker.wire import Approval
from tests.integration.gateway_kit import AGENT, Gateway, engines_of

ASKED = asdict(Approval(expires_at=4_000_000_000.0))


def asked_of_one_that_loses_its_database(gateway: Gateway, path: str, **request: Any) -> httpx2.Response:
    """A request to a gateway whose database stops answering after its first commit."""
    app = create_app(gateway.settings)
    engine = app.state.shared.engine

    def refuse(*_: Any) -> None:
        raise OperationalError("SELECT", {}, Exception("server closed the connection unexpectedly"))

    def go_away(_: Any) -> None:
        for each in engines_of(engine):
            event.listen(each, "before_cursor_execute", refuse)

    event.listen(writer_of(engine).sync_engine, "commit", go_away, once=True)

    async def ask() -> httpx2.Response:
        transport = httpx2.ASGITransport(app, client=("127.0.0.1", 1))
        client = httpx2.AsyncClient(transport=transport, base_url="http://localhost")
        async with app.router.lifespan_context(app), client:
            return await client.post(path, **request)

    return asyncio.run(ask())


@pytest.mark.parametrize("prefer", [{}, {"Prefer": "wait=2"}, {"Prefer": "wait=2", "Idempotency-Key": "k"}])
def test_turn_that_is_stored_is_accepted_though_nothing_can_be_read(gateway: Gateway, prefer: dict[str, str]) -> None:
    """A client that was told to try again would make a second turn."""
    body = {**gateway.defaults, "metadata": {"a": "b"}}
    answer = asked_of_one_that_loses_its_database(gateway, "/v1/turns", json=body, headers=prefer)
    (turn_id,) = gateway.ids()
    assert (answer.status_code, answer.headers["location"]) == (202, f"/v1/turns/{turn_id}")
    assert answer.json() == gateway.turn(turn_id)


def test_input_that_is_stored_is_accepted_though_nothing_can_be_read(gateway: Gateway) -> None:
    """A repeated answer would be stale, and a repeated message would deny later questions."""
    turn_id = gateway.posted()["id"]
    gateway.worker.call(turn_id, 0, 0, approval=ASKED)
    gateway.worker.change(turn_id, status="requires_action")
    answer = asked_of_one_that_loses_its_database(gateway, f"/v1/turns/{turn_id}/inputs", json={"message": "no"})
    assert (answer.status_code, answer.json()) == (202, gateway.turn(turn_id))
    assert (answer.json()["status"], answer.json()["required_actions"]) == ("running", [])


def test_cancel_that_is_stored_is_accepted_though_nothing_can_be_read(gateway: Gateway) -> None:
    """The workers have already been told to stop."""
    turn_id = gateway.posted()["id"]
    answer = asked_of_one_that_loses_its_database(gateway, f"/v1/turns/{turn_id}/cancel")
    assert (answer.status_code, answer.json()) == (202, gateway.turn(turn_id))
    assert gateway.worker.row(turn_id).cancel_requested


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "x"}),
        ("/v1/responses", {"input": "x", "stream": True}),
        ("/v1/responses", {"input": "x", "background": True}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "stream": True}),
    ],
)
def test_turn_of_an_openai_client_begins_though_nothing_can_be_read(
    gateway: Gateway, path: str, body: dict[str, Any]
) -> None:
    """The client is told not to ask again, so its turn must not wait until a worker happens to find it."""
    waits = {"x-stainless-read-timeout": "3"}
    answer = asked_of_one_that_loses_its_database(gateway, path, json={"model": AGENT, **body}, headers=waits)
    (turn_id,) = gateway.ids()
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "turn_unfinished")
    assert answer.headers["x-should-retry"] == "false"
    assert gateway.worker.wake_ups(turn_id)
