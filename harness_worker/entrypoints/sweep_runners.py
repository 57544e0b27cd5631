"""Works a sweep's tasks: over HTTP, where any process may be lost meanwhile, or in the calling process."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from harness_worker.bootstrap.inline import AgentHarness
from harness_worker.entrypoints.client import GatewayClient, JsonObject, RequestRefused, StackUnreachable
from harness_worker.errors import ConfigError
from harness_worker.ports import Clock
from harness_worker.wire import TurnStatus
from harness_worker.workloads.base import WorkloadTask, session_of
from harness_worker.workloads.verdict import FinishedTurn

PATIENCE_S: Final = 30.0
"""How long a gateway may be away, seconds: it is restarted when it dies."""

STUCK_S: Final = 360.0
"""When a turn is called stuck, seconds: a minute after its own time is over."""

WAIT_S: Final = 20.0
POLL_S: Final = 0.25
PASSING: Final = frozenset({"not_ready", "idempotency_in_flight"})


class HttpRunner:
    """Posts turns to a gateway and waits for their end.

    Args:
        client: The gateway.
        clock: For waiting.
    """

    def __init__(self, client: GatewayClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
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
        key = f"{self._sweep}:{task.id}"
        turn = self._patiently(lambda: self._client.create_turn(body, wait_s=WAIT_S, idempotency_key=key))
        if not _has_ended(turn):
            self._await_end(turn["id"])
        return finished(self._patiently(lambda: self._client.turn(turn["id"], include=["messages"])))

    def _await_end(self, turn_id: str) -> None:
        over_at = self._clock.monotonic() + STUCK_S
        while not _has_ended(self._patiently(lambda: self._client.turn(turn_id))):
            if self._clock.monotonic() > over_at:
                return
            self._clock.wait(POLL_S)

    def _patiently(self, ask: Callable[[], JsonObject]) -> JsonObject:
        over_at = self._clock.monotonic() + PATIENCE_S
        while True:
            try:
                return ask()
            except (StackUnreachable, RequestRefused) as refused:
                if not _is_passing(refused) or self._clock.monotonic() > over_at:
                    raise _explained(refused) from refused
            self._clock.wait(POLL_S)


class InProcessRunner:
    """Works turns in the calling thread.

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
    """A Turn of the HTTP API, with its messages, as the sweep judges it."""
    error = turn["error"]
    return FinishedTurn(
        id=turn["id"],
        status=turn["status"],
        stop_reason=turn["stop_reason"],
        error=f"{error['code']}: {error['message']}" if error else None,
        calls=tuple(turn["calls"]),
        messages=tuple(turn["messages"]),
    )


def _has_ended(turn: Mapping[str, Any]) -> bool:
    return TurnStatus(turn["status"]).is_final


def _is_passing(refused: StackUnreachable | RequestRefused) -> bool:
    return isinstance(refused, StackUnreachable) or refused.code in PASSING


def _explained(refused: StackUnreachable | RequestRefused) -> Exception:
    if isinstance(refused, RequestRefused) and refused.code == "unknown_agent":
        return ConfigError(f"{refused.detail}: was the stack started with the workload's --app?")
    return refused
