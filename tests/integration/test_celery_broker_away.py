"""What a worker does while its broker is away."""

from __future__ import annotations

from typing import Any

import pytest
from celery.exceptions import WorkerShutdown
from celery.worker import state
from kombu import Connection
from kombu.asynchronous.hub import Hub

from harness_worker.adapters.celery.consumer import CarefulConsumer
from harness_worker.adapters.embedded.ports import free_port


def test_timers_go_on_and_a_stop_is_obeyed_while_the_broker_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats and the drain are timers: they must not wait for the broker, and their wish to stop is heard."""
    monkeypatch.setattr(state, "should_stop", None)
    consumer: Any = object.__new__(CarefulConsumer)
    consumer.hub = Hub()
    beats: list[int] = []

    def beat() -> None:
        beats.append(1)
        if len(beats) > 1:
            state.should_stop = 0

    consumer.hub.timer.call_repeatedly(0.1, beat)
    with pytest.raises(WorkerShutdown), Connection(f"redis://127.0.0.1:{free_port()}/0") as away:
        consumer.ensure_connected(away)
    assert len(beats) == 2
