"""Runs a sweep's tasks: over HTTP, where any process may die meanwhile, or in the calling process."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from harness_worker.bootstrap.inline import AgentHarness
from harness_worker.client.client import GatewayClient, RequestRefused
from harness_worker.errors import ConfigError
from harness_worker.ports import Clock
from harness_worker.wire import JsonObject
from harness_worker.workloads.base import WorkloadTask, session_of
from harness_worker.workloads.verdict import FinishedTurn

STUCK_S: Final = 360.0
"""After how many seconds a turn counts as stuck: a minute after its own time is over."""

WAIT_S: Final = 20.0


class HttpRunner:
    """Posts turns to a gateway and waits for their end.

    Args:
        client: The gateway.
        clock: For waiting.
    """

    def __init__(self, client: GatewayClient, clock: Clock) -> None:
        self._gateway = client.with_patience(clock=clock)
        self._sweep = secrets.token_hex(8)

    def run(self, agent: str, task: WorkloadTask) -> FinishedTurn:
        """One task as one turn.

        Raises:
            StackUnreachable: Nothing has answered for half a minute.
            ConfigError: The stack does not serve the workload's agent.
            RequestRefused: The gateway refuses the turn.
        """
        body = {
            "agent": agent,
            "input": task.input,
            "session_id": session_of(task.id, self._sweep),
            "metadata": {"script": task.id, "sweep": self._sweep},
        }
        turn_id = self._created(body, f"{self._sweep}:{task.id}")["id"]
        self._gateway.wait(turn_id, STUCK_S, past_approvals=True)
        return finished(self._gateway.turn(turn_id, "messages"))

    def _created(self, body: JsonObject, key: str) -> JsonObject:
        try:
            return self._gateway.create_turn(**body, idempotency_key=key, wait_s=WAIT_S)
        except RequestRefused as refused:
            if refused.code != "unknown_agent":
                raise
            raise ConfigError(f"{refused.detail}: was the stack started with the workload's --app?") from refused


class InProcessRunner:
    """Runs turns on the calling thread.

    Args:
        harness: The engine with the workload's registry.
    """

    def __init__(self, harness: AgentHarness) -> None:
        self._harness = harness
        self._sweep = secrets.token_hex(8)

    def run(self, agent: str, task: WorkloadTask) -> FinishedTurn:
        """One task as one turn."""
        session_id = session_of(task.id, self._sweep)
        result = self._harness.run_turn(session_id, task.input, agent=agent, metadata={"script": task.id})
        return finished(asdict(result))


def finished(turn: Mapping[str, Any]) -> FinishedTurn:
    """A Turn of the HTTP API, with its messages, as the sweep's judge needs it."""
    error = turn["error"]
    return FinishedTurn(
        id=turn["id"],
        status=turn["status"],
        stop_reason=turn["stop_reason"],
        error=f"{error['code']}: {error['message']}" if error else None,
        calls=tuple(turn["calls"]),
        messages=tuple(turn["messages"]),
    )
