"""What a cancel makes the gateway send: a wake-up, and the command that stops workers at once."""

from __future__ import annotations

import threading
from time import monotonic

import pytest

from harness_worker.adapters.embedded.ports import free_port
from harness_worker.testing.services import valkey_service
from harness_worker.testing.waiting import wait_until
from tests.integration.gateway_kit import NOWHERE, Gateway, gateway_on, shut_down
from tests.integration.mailbox import mailbox

CANCELS = 6
"""More than the gateway has threads to publish with."""


def _cancel(gateway: Gateway, turn_id: str) -> None:
    answer = gateway.http.post(f"/v1/turns/{turn_id}/cancel")
    assert answer.status_code == 202, answer.text


def test_cancel_tells_every_worker_to_stop(sqlite_url: str) -> None:
    """Each cancel broadcasts Celery's own remote-control command with the turn's id, once."""
    with (
        valkey_service() as url,
        mailbox(url, "one") as first,
        mailbox(url, "two") as second,
        gateway_on(sqlite_url, url) as gateway,
    ):
        turn_id = gateway.posted()["id"]
        _cancel(gateway, turn_id)
        for heard in (first, second):
            assert wait_until(lambda heard=heard: heard, "a worker to be told") == [turn_id]
        assert len(gateway.worker.wake_ups(turn_id)) == 2


def test_cancel_without_broker_is_accepted_in_time(sqlite_url: str) -> None:
    """While the broker is away, cancels are answered in time; when it is back, the gateway sends again by itself."""
    port = free_port()
    url = f"redis://127.0.0.1:{port}/0"
    others = _publishing()
    with gateway_on(sqlite_url, url) as gateway:
        with valkey_service(port):
            turns = [gateway.posted()["id"] for _ in range(CANCELS)]
            _cancel(gateway, gateway.posted()["id"])  # its connections are open now
            shut_down(port)
            for turn_id in turns:
                began = monotonic()
                _cancel(gateway, turn_id)
                assert monotonic() - began < gateway.settings.publish_timeout_s
        with valkey_service(port):
            with mailbox(url, "one") as heard:
                wait_until(lambda: _told(gateway, heard), "a worker to be told again")
            lost = gateway.posted()["id"]
            shut_down(port)
            _cancel(gateway, lost)
    wait_until(lambda: _publishing() <= others, "the gateway's threads to give up, broker or not")


@pytest.mark.one_database("sqlite")
@pytest.mark.gateway(redis_url=NOWHERE)
def test_cancel_that_no_worker_was_told_of_is_found_in_the_log(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    """By the turn's id, once for the wake-up and once for the workers that run its calls."""
    turn_id = gateway.posted()["id"]
    caplog.clear()
    _cancel(gateway, turn_id)
    told = [record.getMessage() for record in caplog.records if record.name == "api_gateway.publisher"]
    assert [each.endswith(f"; the first is {turn_id}") for each in told] == [True, True]


def _told(gateway: Gateway, heard: list[str]) -> bool:
    turn_id = gateway.posted()["id"]
    _cancel(gateway, turn_id)
    return turn_id in heard


def _publishing() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("publish")}
