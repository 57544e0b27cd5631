"""``POST /v1/turns/{id}/fork``: what a fork consists of, and which forks are refused (docs/how-to/fork-turns.md)."""

# ruff: noqa: ANN401 - columns and answers are any JSON
from __future__ import annotations

import asyncio
from typing import Any, Final

import httpx2
import pytest
from sqlalchemy import func, select, update

from api_gateway.database import create_engine
from api_gateway.requests.turns import ForkRequest
from api_gateway.turns.forking import Fork, Origin, origin_of
from harness_worker.adapters.clock import SystemClock
from harness_worker.adapters.sql.engine import make_engine
from harness_worker.adapters.sql.pruning import SqlPruning
from harness_worker.adapters.sql.store import SqlTurnStore
from harness_worker.core.prompting.past import PastTurn
from harness_worker.core.records import Call, Carried
from harness_worker.entrypoints.cli.prune_sessions import prune
from harness_worker.schema import past_messages, past_turns, turns
from harness_worker.wire import StopReason, child_turn_id
from tests.contract.store_world import RecordedEvents
from tests.integration.gateway_kit import NOWHERE, Gateway, gateway_on, meanwhile, problem_of

ONE: Final = pytest.mark.one_database("sqlite")
CONTEXT: Final = {"context": ["then"], "prefix_hash": "p"}
READ: Final[dict[str, Any]] = {
    "kind": "ToolExecutionResult",
    "call_id": "0.0",
    "tool_name": "get_order",
    "output": {},
    "elapsed_ms": 1.0,
}
DONE: Final = {"status": "ended", "collected": True, "idempotent": True, "attempt": 2}


def use(step: int) -> list[dict[str, Any]]:
    """The model's request in a step."""
    return [{"type": "tool_use", "id": f"u{step}", "name": "get_order", "input": {"order_id": "ö1"}}]


def result(step: int) -> list[dict[str, Any]]:
    """The result that the model is sent."""
    return [{"type": "tool_result", "tool_use_id": f"u{step}", "content": "{}"}]


def ran(gateway: Gateway, *, effect: str | None = "READ_ONLY", was_sent: bool = True, **body: Any) -> dict[str, Any]:
    """A turn that has ended: two steps with a call each, the second of this effect, and an answer."""
    turn_id: str = gateway.posted(**body)["id"]
    for step, (kind, deadline_at) in enumerate((("READ_ONLY", 1.0), (effect, 1.0 if was_sent else None))):
        gateway.worker.say(turn_id, "assistant", use(step))
        gateway.worker.call(turn_id, step, 0, effect=kind, outcome=READ, **DONE, deadline_at=deadline_at)
        gateway.worker.say(turn_id, "user", result(step))
    gateway.worker.say(turn_id, "assistant", [{"type": "text", "text": "done"}])
    gateway.worker.change(turn_id, step=3, preparation=CONTEXT, wake_at=None)
    gateway.worker.finish(turn_id)
    return gateway.turn(turn_id, include="messages")


def fork(gateway: Gateway, turn: dict[str, Any], *, key: str | None = None, **body: Any) -> httpx2.Response:
    """Fork a turn."""
    headers = {} if key is None else {"Idempotency-Key": key}
    return gateway.http.post(f"/v1/turns/{turn['id']}/fork", json=body, headers=headers)


def test_budget_of_a_later_version_is_forked(gateway: Gateway) -> None:
    """During a deployment, a limit that this version does not know is left out, and the others are kept."""
    turn = ran(gateway, budget={"max_steps": 4})
    gateway.worker.change(turn["id"], budget={**turn["budget"], "added_later": 1})
    made = fork(gateway, turn, from_step=1)
    assert made.status_code == 202, made.text
    assert made.json()["budget"] == turn["budget"]


def forked(gateway: Gateway, turn: dict[str, Any], from_step: int, **body: Any) -> dict[str, Any]:
    """A fork that must be accepted."""
    answer = fork(gateway, turn, from_step=from_step, **body)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/v1/turns/{answer.json()['id']}"
    return gateway.turn(answer.json()["id"], include="messages")


def known(gateway: Gateway, turn: dict[str, Any]) -> tuple[list[PastTurn], tuple[Call, ...]]:
    """What a worker reads of a turn: what was said before it, and its calls."""
    engine = make_engine(gateway.settings.database_url, pool_size=1)
    try:
        store = SqlTurnStore(engine, RecordedEvents())
        loaded = store.load(turn["id"])
        assert loaded is not None
        return list(store.past(loaded.turn)), loaded.calls
    finally:
        engine.dispose()


def inputs(past: list[PastTurn]) -> list[str]:
    """The user's words in each of these turns."""
    return [each.messages[0].content for each in past]


def test_fork_has_copies_of_all_it_goes_on_from(gateway: Gateway) -> None:
    """It has copies of the earlier steps and of the session before them; the steps after them are its own."""
    ran(gateway, session_id="s", input="one")
    origin = ran(gateway, session_id="s", input="two")
    other = forked(gateway, origin, 2)
    assert (other["input"], other["messages"]) == ("two", origin["messages"][:5])
    assert (other["calls"], other["usage"]["steps"]) == ([], 0)
    assert other["forked_from"] == {"turn_id": origin["id"], "step": 2}
    assert gateway.http.get(f"/v1/sessions/{other['session_id']}").json()["turns"] == 1
    row = gateway.worker.row(other["id"])
    assert (row.number, row.step, row.first_step, row.message_count) == (1, 2, 2, 5)
    assert (row.preparation, row.status, row.last_seq) == (CONTEXT, "queued", 1)
    (queued,) = gateway.http.get(f"/v1/turns/{other['id']}/events").json()["data"]
    assert queued["data"]["forked_from"] == other["forked_from"]
    past, calls = known(gateway, other)
    assert (inputs(past), [len(each.messages) for each in past]) == (["one"], [6])
    assert [(call.call_id, call.attempt, call.idempotent) for call in calls] == [("0.0", 2, True), ("1.0", 2, True)]
    assert gateway.worker.wake_ups(other["id"])


def test_fork_may_sum_up_though_its_origin_tried(gateway: Gateway) -> None:
    """A summary is requested once before a step, of each turn."""
    origin = ran(gateway)
    gateway.worker.change(origin["id"], preparation={**CONTEXT, "tried_at": 2})
    assert gateway.worker.row(forked(gateway, origin, 2)["id"]).preparation == CONTEXT


def test_fork_from_a_step_that_is_said_at_the_same_moment_has_its_preparation(postgres_url: str) -> None:
    """A worker commits a reply between two statements: a fork behind that reply has what the reply was asked with."""
    with gateway_on(postgres_url, NOWHERE) as gateway:
        turn_id = gateway.posted()["id"]

        def reply() -> None:
            gateway.worker.say(turn_id, "assistant", use(0))
            gateway.worker.say(turn_id, "user", result(0))
            gateway.worker.change(turn_id, step=1, preparation=CONTEXT)

        async def found() -> Origin:
            engine = create_engine(postgres_url)
            wanted = Fork(turn_id=turn_id, request=ForkRequest(from_step=1))
            with meanwhile(engine, "messages.role", reply):
                async with engine.begin() as connection:
                    origin = await origin_of(connection, "default", wanted)
            await engine.dispose()
            return origin

        assert asyncio.run(found()).columns["preparation"] == CONTEXT


def test_fork_of_a_fork_knows_what_both_were_given(gateway: Gateway) -> None:
    """It knows each thing once and in order, as do later turns of its session; other sessions know nothing of it."""
    ran(gateway, session_id="s", input="one")
    first = forked(gateway, ran(gateway, session_id="s", input="two"), 1)
    ran(gateway, session_id="s", input="elsewhere")
    gateway.worker.say(first["id"], "assistant", [{"type": "text", "text": "done"}])
    gateway.worker.change(first["id"], step=2)
    gateway.worker.finish(first["id"])
    later = ran(gateway, session_id=first["session_id"], input="three")
    assert inputs(known(gateway, later)[0]) == ["one", "two"]
    second = forked(gateway, later, 1)
    past, calls = known(gateway, second)
    assert (inputs(past), [call.call_id for call in calls]) == (["one", "two"], ["0.0"])
    again = forked(gateway, gateway.turn(first["id"]), 1)
    past, calls = known(gateway, again)
    assert (inputs(past), [call.call_id for call in calls]) == (["one"], ["0.0"])
    assert again["messages"] == first["messages"]


def test_fork_knows_what_a_model_declined(gateway: Gateway) -> None:
    """Copies of declined turns keep their stop reason, in forks of forks too; copies by older versions have none."""
    declined = ran(gateway, session_id="s", input="one")
    gateway.worker.change(declined["id"], status="incomplete", stop_reason="refusal")
    first = forked(gateway, ran(gateway, session_id="s", input="two"), 1)
    second = forked(gateway, first, 1)
    for fork in (first, second):
        assert [each.stop_reason for each in known(gateway, fork)[0]] == [StopReason.REFUSAL]
    with gateway.worker.engine.begin() as connection:
        connection.execute(update(past_turns).values(stop_reason=None))
    assert [each.stop_reason for each in known(gateway, second)[0]] == [None]


def test_fork_is_given_what_came_since_the_last_summary(gateway: Gateway) -> None:
    """With it comes what that summary carries of earlier turns; the same holds for a fork of the fork."""
    for number in range(3):
        ran(gateway, session_id="s", input=str(number))
    carried = {"tools": ["get_order"], "has_artifact": True, "sources": []}
    summed_up = ran(gateway, session_id="s", input="summed up")
    gateway.worker.change(summed_up["id"], carried=carried)
    first = forked(gateway, ran(gateway, session_id="s", input="last"), 1)
    gateway.worker.finish(first["id"])
    second = forked(gateway, ran(gateway, session_id=first["session_id"], input="other"), 1)
    for fork, expected in ((first, ["summed up"]), (second, ["summed up", "last"])):
        past, _ = known(gateway, fork)
        assert inputs(past) == expected
        assert past[0].carried == Carried(tools=("get_order",), has_artifact=True)


def test_fork_is_whole_though_its_origin_was_removed(gateway: Gateway) -> None:
    """All that it has are copies, which are removed with its own session."""
    ran(gateway, session_id="s", input="one")
    origin = ran(gateway, session_id="s", input="two")
    other = forked(gateway, origin, 2)
    before = known(gateway, other)
    with gateway.worker.engine.begin() as connection:
        connection.execute(update(turns).where(turns.c.finished_at.is_not(None)).values(finished_at=1.0))
    engine = make_engine(gateway.settings.database_url, pool_size=1)
    pruning = SqlPruning(engine)
    prune(pruning, SystemClock(), 2.0, lambda _: None)
    assert gateway.http.get(f"/v1/turns/{origin['id']}").status_code == 404
    assert known(gateway, other) == before
    problem_of(fork(gateway, origin, from_step=1), 404, "not_found")
    gateway.worker.finish(other["id"])
    prune(pruning, SystemClock(), pruning.now(), lambda _: None)
    engine.dispose()
    with gateway.worker.engine.connect() as connection:
        for table in (turns, past_turns, past_messages):
            assert connection.execute(select(func.count()).select_from(table)).scalar_one() == 0


def test_what_the_origin_wrote_later_makes_an_equal_call_a_new_one(gateway: Gateway) -> None:
    """A read from before a later write or an agent's call runs again; calls not sent, or copied, change nothing."""
    for effect, was_sent, still_equal in (
        ("LOCAL_WRITE", True, False),
        (None, True, False),
        ("LOCAL_WRITE", False, True),
        ("READ_ONLY", True, True),
    ):
        _, (call,) = known(gateway, forked(gateway, ran(gateway, effect=effect, was_sent=was_sent), 1))
        assert call.idempotent is still_equal
    _, (before, written) = known(gateway, forked(gateway, ran(gateway, effect="LOCAL_WRITE"), 2))
    assert (before.idempotent, written.idempotent) == (True, True)


def test_fork_waits_for_what_it_is_to_know(gateway: Gateway) -> None:
    """A fork is refused while an earlier turn of its origin's session runs; the origin itself may still run."""
    first, second = (gateway.posted(session_id="s") for _ in range(2))
    problem_of(fork(gateway, second, from_step=0), 409, "session_busy")
    gateway.worker.finish(first["id"])
    gateway.worker.say(second["id"], "assistant", use(0))
    assert forked(gateway, second, 0)["messages"] == [{"role": "user", "content": second["input"]}]
    refused = problem_of(fork(gateway, second, from_step=1), 422, "invalid_request")
    assert "has 1 steps; from_step may be 0 to 0 now" in refused["errors"][0]["msg"]
    gateway.worker.say(second["id"], "user", result(0))
    assert len(forked(gateway, second, 1)["messages"]) == 3


@ONE
def test_what_is_not_said_is_the_origins(gateway: Gateway) -> None:
    """System text and budget come with the agent; the priority does not, because somebody waits for the fork."""
    said: dict[str, Any] = {"budget": {"max_steps": 3}, "metadata": {"a": "b"}, "priority": "batch", "parallel": False}
    origin = ran(gateway, system_prompt_override="Be kind.", skill_context="Skill.", **said)
    gateway.worker.publish_agent("other")
    same = gateway.worker.row(forked(gateway, origin, 1, budget={"max_tool_calls": 1})["id"])
    kept = (same.priority, same.parallel, same.metadata, same.system_prompt_override, same.skill_context)
    assert kept == ("interactive", False, {"a": "b"}, "Be kind.", "Skill.")
    assert (same.budget["max_steps"], same.budget["max_tool_calls"]) == (3, 1)
    changed = {"metadata": {"c": "d"}, "priority": "batch", "parallel": True}
    other = gateway.worker.row(forked(gateway, origin, 0, agent="other", input="else", **changed)["id"])
    assert (other.agent, other.input, other.metadata, other.priority) == ("other", "else", {"c": "d"}, "batch")
    assert (other.system_prompt_override, other.budget["max_steps"], other.preparation) == (None, 6, None)


@ONE
def test_fork_that_makes_no_sense_is_422(gateway: Gateway) -> None:
    """The problem says which field is wrong."""
    origin = ran(gateway)
    refused: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["body", "from_step"]),
        ({"from_step": -1}, ["body", "from_step"]),
        ({"from_step": "1"}, ["body", "from_step"]),
        ({"from_step": 10**30}, ["body", "from_step"]),
        ({"from_step": 1, "input": "else"}, ["body"]),
        ({"from_step": 1, "session_id": "s"}, ["body", "session_id"]),
    ]
    for body, loc in refused:
        problem = problem_of(fork(gateway, origin, **body), 422, "invalid_request")
        assert [error["loc"] for error in problem["errors"]] == [loc]


@ONE
def test_answer_is_no_step_to_go_on_behind(gateway: Gateway) -> None:
    """After an answer there is nothing to ask; forks of unknown turns, or for unknown agents, are refused too."""
    origin = ran(gateway)
    problem = problem_of(fork(gateway, origin, from_step=3), 422, "invalid_request")
    assert "from_step may be 0 to 2" in problem["errors"][0]["msg"]
    problem_of(fork(gateway, {"id": "none"}, from_step=0), 404, "not_found")
    for name in ("none", ""):
        problem_of(fork(gateway, origin, from_step=0, agent=name), 404, "unknown_agent")
    gateway.worker.change(origin["id"], tenant="another")
    problem_of(fork(gateway, origin, from_step=0), 404, "not_found")


@ONE
def test_one_idempotency_key_makes_one_fork(gateway: Gateway) -> None:
    """That holds even once its origin is gone; a fork of another turn needs another key."""
    origin, other = ran(gateway), ran(gateway)
    made = fork(gateway, origin, key="k", from_step=1)
    problem_of(fork(gateway, other, key="k", from_step=1), 422, "idempotency_mismatch")
    gateway.worker.change(origin["id"], tenant="another")
    again = fork(gateway, origin, key="k", from_step=1)
    assert (again.status_code, again.json()["id"]) == (202, made.json()["id"])


@ONE
@pytest.mark.gateway(tenant_queue=1)
def test_fork_is_limited_as_a_post_is(gateway: Gateway) -> None:
    """The tenant's limits apply to forks as to any turn."""
    origin = ran(gateway)
    forked(gateway, origin, 1)
    problem_of(fork(gateway, origin, from_step=1), 429, "queue_full")


def test_call_of_an_agent_is_its_result_alone(gateway: Gateway) -> None:
    """A copied call of an agent has its result; the turn that gave it stays the origin's child."""
    turn_id: str = gateway.posted()["id"]
    gateway.worker.say(turn_id, "assistant", use(0))
    asked: dict[str, Any] = {"delegation": {"agent": "helper", "budget": {}}, "deadline_at": 1.0}
    gateway.worker.call(turn_id, 0, 0, outcome=READ, **asked, **DONE)
    gateway.worker.say(turn_id, "user", result(0))
    origin = gateway.turn(turn_id)
    _, (copied,) = known(gateway, forked(gateway, origin, 1))
    assert (origin["calls"][0]["child_turn_id"], copied.delegation) == (child_turn_id(turn_id, "0.0"), None)
    assert copied.outcome is not None
