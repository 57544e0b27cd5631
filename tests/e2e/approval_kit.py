"""Turns that wait for a person, and what the person says."""

from __future__ import annotations

from harness_worker.testing.waiting import wait_until
from tests.e2e.outsider import Json, Outsider, Step


def parked(outsider: Outsider, *steps: Step) -> Json:
    """A turn that waits for a person."""
    return await_parked(outsider, outsider.post(*steps))


def await_parked(outsider: Outsider, turn_id: str) -> Json:
    """The turn once it waits for a person."""

    def waiting() -> Json | None:
        turn = outsider.turn(turn_id)
        return turn if turn["status"] == "requires_action" else None

    return wait_until(waiting, f"turn {turn_id} to wait for a person", 30)


def say(outsider: Outsider, turn: Json, call_id: str, decision: str, status: int = 202, **more: object) -> Json:
    """Answer the question about a call."""
    body = {"call_id": call_id, "decision": decision, **more}
    answer = outsider.http.post(f"/v1/turns/{turn['id']}/inputs", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()
