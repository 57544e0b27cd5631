"""Webhooks of a running stack with real workers."""

from __future__ import annotations

import os
import signal

import httpx2
import pytest

from harness_worker.entrypoints.stack import running_stack
from harness_worker.testing.waiting import wait_until
from tests.e2e.approval_kit import say
from tests.e2e.outsider import Json, Outsider, call
from tests.receiver import Receiver
from tests.stacks import role_pid, run_harness

LONG_S = 30.0
LEASE_S = 60.0


@pytest.fixture
def secret(outsider: Outsider) -> str:
    """The secret that the stack's operator gives to a receiver."""
    told = run_harness("webhooks", "secret", "--home", str(outsider.stack.home))
    assert told.returncode == 0, told.stderr
    return told.stdout.strip()


def webhook_of(outsider: Outsider, turn_id: str) -> Json | None:
    """The state of a turn's webhook, once it was delivered."""
    webhook = outsider.http.get(f"/v1/turns/{turn_id}/webhook").json()
    return webhook if webhook["status"] == "delivered" else None


def test_turn_is_told_when_it_parks_and_when_it_ends(outsider: Outsider, other: Receiver, secret: str) -> None:
    """The receiver can answer the question and read the result from webhooks alone."""
    turn = outsider.post([call("ask_put", n=1)], "done", webhook=other.url)
    asked = other.await_count(1, LONG_S)[0].genuine(secret)
    assert (asked["type"], asked["data"]["id"], asked["data"]["status"]) == (
        "turn.requires_action",
        turn,
        "requires_action",
    )
    (action,) = asked["data"]["required_actions"]
    say(outsider, asked["data"], action["call_id"], "approve")
    ended = other.await_count(2, LONG_S)[1].genuine(secret)
    assert (ended["type"], ended["data"]["output_text"]) == ("turn.completed", "done")
    whole = outsider.end(turn)
    assert ended["data"] == {name: value for name, value in whole.items() if name in ended["data"]}
    wait_until(lambda: webhook_of(outsider, turn), "the note of it")


def test_every_end_is_told(outsider: Outsider, other: Receiver, secret: str) -> None:
    """A webhook is also sent for a turn that was cancelled, failed, or used its budget up."""
    cancelled = outsider.post([call("ask_put", n=1)], "done", webhook=other.url)
    other.await_count(1, LONG_S)
    outsider.http.post(f"/v1/turns/{cancelled}/cancel")
    failed = outsider.post([call("look", n=1)], webhook=other.url)
    cut = outsider.post([call("look", n=1)], "done", webhook=other.url, budget={"max_steps": 1})
    told = [each.genuine(secret) for each in other.await_count(4, LONG_S)[1:]]
    kinds = {each["data"]["id"]: each["type"] for each in told}
    assert kinds == {cancelled: "turn.cancelled", failed: "turn.failed", cut: "turn.incomplete"}


@pytest.mark.acceptance
def test_gateway_that_is_killed_while_it_tells_is_followed_by_the_next(outsider: Outsider, other: Receiver) -> None:
    """The gateway started next delivers it again under the same id, once the lease has ended."""
    other.answers.append(other.hang)
    turn = outsider.run("done", webhook=other.url)["id"]
    other.await_count(1, LONG_S)
    os.kill(role_pid(outsider.stack.home, "gateway"), signal.SIGKILL)
    first, second = other.await_count(2, LEASE_S)
    assert first.id == second.id
    assert running_stack(outsider.stack.home) is not None
    webhook = wait_until(lambda: _if_answered(outsider, turn), "the note of it", LONG_S)
    assert webhook["attempts"] == 2


def _if_answered(outsider: Outsider, turn_id: str) -> Json | None:
    try:
        return webhook_of(outsider, turn_id)
    except httpx2.TransportError:
        return None
