"""What operators see of a broker, on Redis and on RabbitMQ."""

from __future__ import annotations

import json

import pytest

from harness_worker.testing.waiting import wait_until
from tests.e2e.outsider import Outsider, call
from tests.e2e.workers import busy_coordinator
from tests.stacks import run_harness


@pytest.mark.one_database("postgres")
def test_doctor_finds_the_broker_and_its_workers(outsider: Outsider) -> None:
    """``harness doctor`` asks the broker that carries the turns, and asks the workers through it."""
    said = run_harness("doctor", "--home", str(outsider.stack.home), "--json")
    found = json.loads(said.stdout)
    assert found["ok"], found
    names = {check["name"] for check in found["checks"]}
    assert "workers" in names
    assert ("broker" in names) is (outsider.broker_url != outsider.stack.redis_url)


@pytest.mark.one_database("postgres")
def test_metrics_tell_how_many_messages_wait(outsider: Outsider) -> None:
    """A wake-up waits in its queue as long as no coordinator takes it, and the metrics count it there."""

    def has_waiting() -> bool:
        lines = outsider.http.get("/metrics").text.splitlines()
        return any("turns.interactive" in line and float(line.split()[-1]) >= 1 for line in lines)

    with busy_coordinator(outsider):
        turn_id = outsider.post([call("look", n=1)], "done")
        wait_until(has_waiting, "the wake-up to be counted")
    assert outsider.end(turn_id)["output_text"] == "done"
