"""Answers to a turn that waits for a person, on both kinds of database, with a stand-in for workers."""

# ruff: noqa: ANN401 - columns, bodies and answers are any JSON
from __future__ import annotations

import threading
from dataclasses import asdict
from typing import Any

import httpx2
import pytest
from sqlalchemy import select

from harness_worker.core.outcomes import ToolExecutionResult, to_record
from harness_worker.schema import tool_calls
from harness_worker.wire import Approval
from tests.integration.gateway_kit import Gateway, problem_of

FAR = 4_000_000_000.0
ASKED = asdict(Approval(expires_at=FAR))
PROPERTIES = {
    "order_id": {"type": "string"},
    "day": {"type": "string", "format": "date"},
    "at": {"type": "string", "format": "date-time"},
}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": ["order_id"]}
TOOL = {"name": "get_order", "description": "", "effect": None, "schema": SCHEMA}


@pytest.fixture
def gateway(gateway: Gateway) -> Gateway:
    """A gateway with an agent that has a tool."""
    gateway.worker.publish_agent("clerk", tools=[TOOL])
    return gateway


def parked(gateway: Gateway, *approvals: dict[str, Any] | None, **columns: Any) -> str:
    """A turn that waits for a person, with a call for each approval."""
    turn_id = gateway.posted(agent="clerk")["id"]
    for position, approval in enumerate(approvals):
        gateway.worker.call(turn_id, 0, position, approval=approval, **columns)
    gateway.worker.change(turn_id, status="requires_action", wake_at=FAR)
    return turn_id


def say(
    gateway: Gateway, turn_id: str, call_id: str = "0.0", decision: str = "approve", **more: Any
) -> httpx2.Response:
    """Answer the question about a call."""
    body = {"call_id": call_id, "decision": decision, **more}
    return gateway.http.post(f"/v1/turns/{turn_id}/inputs", json=body)


def approval_of(gateway: Gateway, turn_id: str, position: int = 0, *, step: int = 0) -> Any:
    """The approval in the call's row."""
    key = (tool_calls.c.turn_id == turn_id, tool_calls.c.step == step, tool_calls.c.position == position)
    wanted = select(tool_calls.c.approval).where(*key)
    with gateway.worker.engine.connect() as connection:
        return connection.execute(wanted).scalar_one()


def test_turn_shows_what_it_waits_for(gateway: Gateway) -> None:
    """A turn, also in the list, shows each open question with its arguments and when it expires."""
    turn_id = parked(gateway, ASKED, None, {**ASKED, "decision": "deny"}, asdict(Approval()))
    wanted = [
        {
            "call_id": "0.0",
            "tool": "get_order",
            "arguments": {"order_id": "ö1"},
            "expires_at": "2096-10-02T07:06:40.000000Z",
        }
    ]
    assert gateway.turn(turn_id)["required_actions"] == wanted
    listed = gateway.http.get("/v1/turns", params={"status": "requires_action"}).json()["data"]
    assert [(turn["id"], turn["required_actions"]) for turn in listed] == [(turn_id, wanted)]
    gateway.worker.finish(turn_id, "cancelled")
    assert gateway.turn(turn_id)["required_actions"] == []


def test_turn_shows_what_those_below_it_wait_for(gateway: Gateway) -> None:
    """Beside its own questions it shows those of turns below it, with the turn to answer, as long as both run."""
    below, above = parked(gateway, ASKED, None), gateway.posted(agent="clerk")["id"]
    gateway.worker.change(above, status="running", parked_below=[{"turn_id": below, "fence": 3}])
    (asked,) = gateway.turn(below)["required_actions"]
    wanted = [{**asked, "turn_id": below}]
    shown, *listed = gateway.turn(above), *gateway.http.get("/v1/turns", params={"status": "running"}).json()["data"]
    assert [(turn["required_actions"], turn["subagent_actions"]) for turn in (shown, *listed)] == [([], wanted)] * 2
    assert gateway.turn(below)["subagent_actions"] == []
    refused = problem_of(say(gateway, above), 409, "stale_input")
    assert f"turn {below} below it does" in refused["detail"]
    assert say(gateway, below).json()["status"] == "running"
    assert gateway.turn(above)["subagent_actions"] == []
    gateway.worker.finish(above, "cancelled")
    gateway.worker.call(below, 0, 2, approval=ASKED)
    assert gateway.turn(above)["subagent_actions"] == []


def test_decision_is_kept_and_the_workers_are_woken(gateway: Gateway) -> None:
    """One commit stores the answer and makes the turn due; then a wake-up is sent, and the turn no longer waits."""
    turn_id = parked(gateway, ASKED)
    before = gateway.worker.row(turn_id)
    answer = say(gateway, turn_id, reason="fine")
    assert answer.status_code == 202
    assert (answer.json()["status"], answer.json()["required_actions"]) == ("running", [])
    assert approval_of(gateway, turn_id) == {**ASKED, "decision": "approve", "reason": "fine"}
    after = gateway.worker.row(turn_id)
    assert (after.wakes, after.fence) == (before.wakes + 1, before.fence)
    assert after.wake_at < FAR
    assert len(gateway.worker.wake_ups(turn_id)) == 2


def test_decision_on_one_of_two_leaves_the_other_open(gateway: Gateway) -> None:
    """The turn still waits for the other answer."""
    turn_id = parked(gateway, ASKED, ASKED)
    answer = say(gateway, turn_id, "0.1", "deny").json()
    assert answer["status"] == "requires_action"
    assert [action["call_id"] for action in answer["required_actions"]] == ["0.0"]
    assert say(gateway, turn_id, "0.0").json()["status"] == "running"


def test_answers_are_about_the_calls_of_one_turn_and_step(gateway: Gateway) -> None:
    """Calls of several turns have the same ids; a message denies only what the turn itself asks about."""
    before, turn_id, after = (parked(gateway, ASKED, ASKED) for _ in range(3))
    resolved = {**ASKED, "decision": "approve", "is_resolved": True}
    gateway.worker.call(turn_id, 1, 0, approval=resolved)
    assert say(gateway, turn_id, "0.1").json()["status"] == "requires_action"
    assert approval_of(gateway, turn_id, 1) == {**ASKED, "decision": "approve"}
    sent = gateway.http.post(f"/v1/turns/{turn_id}/inputs", json={"message": "never mind"})
    assert sent.json()["status"] == "running"
    assert approval_of(gateway, turn_id)["decision"] == "deny"
    assert approval_of(gateway, turn_id, step=1) == resolved
    assert [approval_of(gateway, each, n) for each in (before, after) for n in (0, 1)] == [ASKED] * 4
    assert {gateway.turn(each)["status"] for each in (before, after)} == {"requires_action"}


def test_decision_on_a_running_turns_open_question_counts(gateway: Gateway) -> None:
    """A question may be answered while other calls of the turn run; the turn's status does not change."""
    turn_id = parked(gateway, ASKED)
    gateway.worker.change(turn_id, status="running", owner="visit", lease_until=FAR)
    assert say(gateway, turn_id).status_code == 202
    assert (gateway.worker.row(turn_id).status, gateway.worker.row(turn_id).owner) == ("running", "visit")


def test_message_denies_all_that_waits(gateway: Gateway) -> None:
    """The model reads the message as the reason of each denial."""
    turn_id = parked(gateway, ASKED, None, ASKED)
    body = {"message": "Ask me tomorrow."}
    assert gateway.http.post(f"/v1/turns/{turn_id}/inputs", json=body).status_code == 202
    denied = {**ASKED, "decision": "deny", "reason": "Ask me tomorrow."}
    assert [approval_of(gateway, turn_id, position) for position in range(3)] == [denied, None, denied]


@pytest.mark.parametrize(
    "columns",
    [
        {"approval": None},
        {"approval": asdict(Approval())},
        {"approval": {**ASKED, "decision": "approve"}},
        {"approval": {**ASKED, "is_resolved": True}},
        {"approval": asdict(Approval(expires_at=1.0))},
        {"approval": ASKED, "status": "pending"},
        {
            "approval": ASKED,
            "outcome": to_record(ToolExecutionResult(call_id="0.0", tool_name="t", output="", elapsed_ms=1.0)),
        },
    ],
)
def test_input_nobody_waits_for_is_stale(gateway: Gateway, columns: dict[str, Any]) -> None:
    """For a call never asked about, answered, expired, sent or ended, nothing is written and nobody is woken."""
    turn_id = parked(gateway)
    gateway.worker.call(turn_id, 0, 0, **columns)
    before = gateway.worker.row(turn_id)
    problem_of(say(gateway, turn_id), 409, "stale_input")
    problem_of(gateway.http.post(f"/v1/turns/{turn_id}/inputs", json={"message": "hi"}), 409, "stale_input")
    assert gateway.worker.row(turn_id) == before
    assert len(gateway.worker.wake_ups(turn_id)) == 1


def test_input_to_a_turn_that_has_ended_is_told_so(gateway: Gateway) -> None:
    """Its code is not that of a turn which may ask again."""
    turn_id = parked(gateway, ASKED)
    gateway.worker.finish(turn_id)
    problem_of(say(gateway, turn_id), 409, "turn_finished")


def test_answer_to_a_turn_that_is_being_cancelled_is_stale(gateway: Gateway) -> None:
    """Nobody is told that an approval was accepted which will have no effect."""
    turn_id = parked(gateway, ASKED)
    assert gateway.http.post(f"/v1/turns/{turn_id}/cancel").status_code == 202
    for decision in ("approve", "deny"):
        assert "being cancelled" in problem_of(say(gateway, turn_id, decision=decision), 409, "stale_input")["detail"]
    assert approval_of(gateway, turn_id) == ASKED


def test_unknown_call_of_a_parked_turn_is_stale(gateway: Gateway) -> None:
    """The detail names the calls that do wait."""
    turn_id = parked(gateway, ASKED)
    problem = problem_of(say(gateway, turn_id, "0.7"), 409, "stale_input")
    assert "open calls: 0.0" in problem["detail"]


def test_two_decisions_at_once_make_one(gateway: Gateway) -> None:
    """One is accepted, and all others are stale."""
    turn_id = parked(gateway, ASKED)
    ready, codes = threading.Barrier(4), list[int]()

    def decide(decision: str) -> None:
        ready.wait()
        codes.append(say(gateway, turn_id, decision=decision).status_code)

    threads = [threading.Thread(target=decide, args=(word,)) for word in ("approve", "deny", "approve", "deny")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [202, 409, 409, 409]


@pytest.mark.one_database("sqlite")
@pytest.mark.parametrize(
    ("arguments", "loc"),
    [
        ({"order_id": 7}, ["body", "arguments", "order_id"]),
        ({}, ["body", "arguments"]),
        ({"order_id": "1", "more": 1}, ["body", "arguments"]),
        ({"order_id": "\x00"}, ["body", "arguments"]),
        ({"order_id": "1", "day": "tomorrow"}, ["body", "arguments", "day"]),
        ({"order_id": "1", "at": "noon"}, ["body", "arguments", "at"]),
    ],
)
def test_arguments_that_do_not_fit_are_422(gateway: Gateway, arguments: dict[str, Any], loc: list[str]) -> None:
    """Edited arguments are checked against the published schema; if they do not fit, the turn keeps waiting."""
    turn_id = parked(gateway, ASKED)
    problem = problem_of(say(gateway, turn_id, arguments=arguments), 422, "invalid_request")
    assert [error["loc"] for error in problem["errors"]] == [loc]
    assert approval_of(gateway, turn_id) == ASKED
    assert gateway.turn(turn_id)["status"] == "requires_action"


def test_arguments_that_fit_are_kept_for_the_workers(gateway: Gateway) -> None:
    """If nobody publishes the agent any more, they are kept too: workers check everything again."""
    turn_id = parked(gateway, ASKED, ASKED)
    given = {"order_id": "2", "at": "2026-12-01T10:00:00"}
    assert say(gateway, turn_id, "0.0", arguments=given).status_code == 202
    assert approval_of(gateway, turn_id)["arguments"] == given
    gateway.worker.change(turn_id, agent="withdrawn")
    assert say(gateway, turn_id, "0.1", arguments={"anything": 1}).status_code == 202


def test_formats_are_remarks_where_the_tools_worker_says_so(gateway: Gateway) -> None:
    """A tool with a JSON Schema of its own accepts from a person what it accepts from a model."""
    gateway.worker.publish_agent("lax", tools=[{**TOOL, "checks_formats": False}])
    turn_id = parked(gateway, ASKED)
    gateway.worker.change(turn_id, agent="lax")
    assert say(gateway, turn_id, arguments={"order_id": 1}).status_code == 422
    assert say(gateway, turn_id, arguments={"order_id": "1", "day": "tomorrow"}).status_code == 202
