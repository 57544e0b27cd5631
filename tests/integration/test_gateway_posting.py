"""Posting turns: what is stored, which wake-ups are sent, and how repeats are answered."""

# ruff: noqa: ANN401 - columns, bodies and answers are any JSON
from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import delete, event, insert, select, text, update

from api_gateway.database import create_engine
from api_gateway.requests.turns import BudgetRequest
from api_gateway.turns.idempotency import FORGOTTEN_AT_ONCE, Earlier, IdempotencyClaim, IdempotencyKeys
from harness_worker.schema import idempotency_keys, messages, turn_events, turns
from harness_worker.wire import DEFAULT_TENANT, IDEMPOTENCY_KEY_S
from tests.integration.gateway_kit import AGENT, NOWHERE, Gateway, problem_of, sync_engine
from tests.unit.builders import CAPS


def count_turns(gateway: Gateway) -> int:
    """The number of turns."""
    with gateway.worker.engine.connect() as connection:
        return len(connection.execute(select(turns.c.id)).all())


def test_post_answers_202_with_exactly_a_turns_fields(gateway: Gateway) -> None:
    """The turn is queued; the answer has all fields of a turn, and its address."""
    response = gateway.post(metadata={"clé": "ü"}, session_id="s1")
    turn = response.json()
    assert response.status_code == 202
    assert response.headers["location"] == f"/v1/turns/{turn['id']}"
    created_at = turn.pop("created_at")
    assert created_at.endswith("Z")
    assert len(created_at) == len("2026-01-01T00:00:00.000000Z")
    zeros = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "dollars", "steps")
    assert turn == {
        "id": turn["id"],
        "status": "queued",
        "stop_reason": None,
        "agent": AGENT,
        "session_id": "s1",
        "parent": None,
        "input": "Where is order ö1?",
        "output_text": "",
        "citations": [],
        "decision": None,
        "forked_from": None,
        "usage": {**dict.fromkeys(zeros, 0), "tool_calls": 0},
        "budget": CAPS,
        "calls": [],
        "required_actions": [],
        "subagent_actions": [],
        "error": None,
        "metadata": {"clé": "ü"},
        "batch_id": None,
        "custom_id": None,
        "started_at": None,
        "finished_at": None,
    }
    assert "ö1" in response.text, "non-ASCII text is not escaped"


def test_post_stores_turn_message_and_first_event_together(gateway: Gateway) -> None:
    """One commit stores the queued turn, due at once, with its user message and event 1."""
    turn_id = gateway.posted(session_id="s1", budget={"timeout_s": 7}, system_prompt_override="Be brief.")["id"]
    row = gateway.worker.row(turn_id)
    assert (row.status, row.tenant, row.last_seq, row.message_count, row.fence) == ("queued", "default", 1, 1, 0)
    assert row.wake_at == row.created_at
    assert row.deadline_at == pytest.approx(row.created_at + 7)
    assert row.system_prompt_override == "Be brief."
    with gateway.worker.engine.connect() as connection:
        message = connection.execute(select(messages).where(messages.c.turn_id == turn_id)).one()
        event = connection.execute(select(turn_events).where(turn_events.c.turn_id == turn_id)).one()
    assert (message.position, message.role, message.content) == (0, "user", "Where is order ö1?")
    assert (event.seq, event.type, event.at) == (1, "turn.queued", row.created_at)
    assert event.data == {"agent": AGENT, "session_id": "s1"}


@pytest.mark.parametrize("missing", ["turns", "messages", "turn_events"])
def test_post_that_cannot_store_everything_stores_nothing(gateway: Gateway, missing: str) -> None:
    """Whichever row cannot be written, no other row is either, and the key can be used again."""
    everything = (turns, messages, turn_events, idempotency_keys)
    with gateway.worker.engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {missing} RENAME TO away"))
    refused = gateway.post(key="once")
    with gateway.worker.engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE away RENAME TO {missing}"))
        assert [connection.execute(select(table)).all() for table in everything] == [[], [], [], []]
    assert refused.status_code >= 500
    assert gateway.post(key="once").status_code == 202


@pytest.mark.parametrize("priority", ["interactive", "batch"])
def test_post_sends_one_wake_up_to_the_prioritys_queue(gateway: Gateway, priority: str) -> None:
    """The wake-up is ``turn.advance`` with only the id; Flower sees turn and tenant, but no text."""
    turn_id = gateway.posted(priority=priority)["id"]
    (message,) = gateway.worker.wake_ups(turn_id, priority)
    assert message["task"] == "turn.advance"
    assert message["body"][:2] == [[turn_id], {}]
    assert (message["argsrepr"], message["kwargsrepr"]) == (f"(turn={turn_id})", "(tenant=default)")
    assert message["ignore_result"] is True


@pytest.mark.one_database("sqlite")
@pytest.mark.gateway(redis_url=NOWHERE)
def test_post_is_accepted_while_the_broker_is_down(gateway: Gateway) -> None:
    """The turn is stored without a broker."""
    turn_id = gateway.posted()["id"]
    assert gateway.turn(turn_id)["status"] == "queued"


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        ({}, {}),
        ({"max_steps": 3, "timeout_s": 1.5}, {"max_steps": 3, "timeout_s": 1.5}),
        ({"max_steps": 7, "max_dollars": 9.0, "timeout_s": 1e300}, {}),
        ({"max_steps": 0, "max_tool_calls": 0, "max_dollars": 0, "timeout_s": 0, "max_tokens": 0}, None),
        ({"max_tokens": 10**30}, {"max_tokens": 2**53}),
        ({"max_steps": 2.0, "max_tokens": None}, {"max_steps": 2}),
    ],
)
def test_post_clamps_the_budget_to_the_agents(gateway: Gateway, wanted: Any, given: Any) -> None:
    """Each limit asked for counts unless the agent's is lower; zero is allowed, and null counts as absent."""
    expected = {**CAPS, **(wanted if given is None else given)}
    turn = gateway.posted(budget=wanted)
    assert turn["budget"] == expected
    assert gateway.worker.row(turn["id"]).budget == expected


@pytest.mark.one_database("sqlite")
@pytest.mark.gateway(tenant_budget=BudgetRequest(max_steps=2, max_tokens=500, timeout_s=1e6))
def test_post_clamps_the_budget_to_the_tenants(gateway: Gateway) -> None:
    """The tenant's limit counts over the agent's and the turn's, unless theirs is lower."""
    expected = {**CAPS, "max_steps": 2, "max_tokens": 500}
    assert gateway.posted()["budget"] == expected
    assert gateway.posted(budget={"max_steps": 6, "max_tokens": 400})["budget"] == {**expected, "max_tokens": 400}


def test_post_without_a_session_makes_one(gateway: Gateway) -> None:
    """Each such turn has a session of its own; null counts as absent."""
    sessions = {gateway.posted(session_id=None)["session_id"] for _ in range(2)}
    assert len(sessions) == 2
    assert all(sessions)


def test_post_for_an_unknown_agent_is_404_and_names_those_there_are(gateway: Gateway) -> None:
    """The answer lists the agents, and nothing is stored."""
    problem = problem_of(gateway.post(agent="suport"), 404, "unknown_agent")
    assert AGENT in problem["detail"]
    assert count_turns(gateway) == 0


def test_post_repeated_with_its_key_gives_the_same_turn_as_it_is_now(gateway: Gateway) -> None:
    """A body that is equal as JSON gets the first answer's status and address, with the turn's current state."""
    first = gateway.post(key="k", budget={"max_steps": 1, "timeout_s": 2})
    assert first.status_code == 202, first.text
    gateway.worker.finish(first.json()["id"])
    body = f'{{"input":"Where is order \\u00f61?", "budget":{{"timeout_s":2.0,"max_steps":1}},"agent":"{AGENT}"}}'
    again = gateway.http.post("/v1/turns", content=body, headers={"Idempotency-Key": "k"})
    assert again.status_code == first.status_code == 202
    assert again.headers["location"] == first.headers["location"]
    assert (again.json()["id"], again.json()["status"]) == (first.json()["id"], "completed")
    assert count_turns(gateway) == 1
    assert len(gateway.worker.wake_ups(first.json()["id"])) == 1


def test_post_with_a_used_key_and_another_body_is_refused(gateway: Gateway) -> None:
    """A key belongs to one body."""
    gateway.posted(key="k")
    problem_of(gateway.post(key="k", input="other"), 422, "idempotency_mismatch")
    problem_of(gateway.post(key="k", parallel=True), 422, "idempotency_mismatch")
    assert count_turns(gateway) == 1


def test_post_refused_does_not_use_up_its_key(gateway: Gateway) -> None:
    """After a 4xx the same key may carry another body."""
    problem_of(gateway.post(key="k", agent="nobody"), 404, "unknown_agent")
    problem_of(gateway.post(key="k", input=7), 422, "invalid_request")
    assert gateway.posted(key="k")["status"] == "queued"


def test_post_key_is_forgotten_after_a_day(gateway: Gateway) -> None:
    """A day later the key makes a new turn."""
    first = gateway.posted(key="k")
    with gateway.worker.engine.begin() as connection:
        aged = update(idempotency_keys).values(created_at=idempotency_keys.c.created_at - 86_401)
        connection.execute(aged)
    assert gateway.posted(key="k", input="other")["id"] != first["id"]


def test_keys_whose_time_is_over_are_taken_away_by_later_ones(gateway: Gateway) -> None:
    """Posts remove a few expired keys each, also when they come together, and no key that is still valid."""
    many = 2 * FORGOTTEN_AT_ONCE + 1
    old = {
        "tenant": DEFAULT_TENANT,
        "body": "",
        "turn_id": "",
        "status_code": 202,
        "created_at": time.time() - IDEMPOTENCY_KEY_S - 60,
    }
    kept = {**old, "key": "kept", "created_at": time.time() - IDEMPOTENCY_KEY_S + 60}
    with gateway.worker.engine.begin() as connection:
        connection.execute(insert(idempotency_keys), [kept, *({**old, "key": str(number)} for number in range(many))])
    gateway.posted(key="first")
    assert len(keys(gateway)) == many - FORGOTTEN_AT_ONCE + len(["kept", "first"])
    with ThreadPoolExecutor(4) as threads:
        answers = [each.result() for each in [threads.submit(gateway.post, key=f"k{number}") for number in range(4)]]
    assert [answer.status_code for answer in answers] == [202] * 4
    gateway.posted(key="last")
    assert keys(gateway) == {"kept", "first", "k0", "k1", "k2", "k3", "last"}


def test_key_that_is_removed_while_it_is_looked_up_is_free(postgres_url: str) -> None:
    """If a key that has just expired is removed meanwhile, the post claims it again."""
    engine, beside = create_engine(postgres_url), sync_engine(postgres_url)
    removals = 0

    def remove(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        nonlocal removals
        if statement.startswith("SELECT idempotency_keys") and not removals:
            with beside.begin() as connection:
                removals = connection.execute(delete(idempotency_keys)).rowcount

    async def claim(made_id: str) -> Earlier | None:
        claimed = IdempotencyClaim(key="k", digest="d")
        async with engine.begin() as connection:
            return await IdempotencyKeys(DEFAULT_TENANT).claim(connection, claimed, made_id)

    async def run() -> list[Earlier | None]:
        try:
            return [await claim(made_id) for made_id in ("first", "second", "third")]
        finally:
            await engine.dispose()

    event.listen(engine.sync_engine, "before_cursor_execute", remove)
    assert asyncio.run(run()) == [None, None, Earlier(made_id="second", status_code=202)]
    assert removals == 1
    beside.dispose()


def keys(gateway: Gateway) -> set[str]:
    """The idempotency keys that are stored."""
    with gateway.worker.engine.connect() as connection:
        return set(connection.execute(select(idempotency_keys.c.key)).scalars())


def test_posts_with_one_key_at_once_make_one_turn(gateway: Gateway) -> None:
    """One turn is made and woken once; the other posts get that turn, or 409."""
    with ThreadPoolExecutor(6) as threads:
        answers = [pending.result() for pending in [threads.submit(gateway.post, key="k") for _ in range(6)]]
    accepted = [answer.json()["id"] for answer in answers if answer.status_code == 202]
    refused = [answer for answer in answers if answer.status_code != 202]
    assert len(set(accepted)) == 1
    for answer in refused:
        problem_of(answer, 409, "idempotency_in_flight")
    assert count_turns(gateway) == 1
    assert len(gateway.worker.wake_ups(accepted[0])) == 1


def test_posts_at_once_are_all_stored(gateway: Gateway) -> None:
    """Simultaneous writers wait for each other, and none fails."""
    with ThreadPoolExecutor(8) as threads:
        pending = [threads.submit(gateway.post, input=str(number)) for number in range(24)]
        answers = [answer.result() for answer in pending]
    assert [answer.status_code for answer in answers] == [202] * 24
    assert count_turns(gateway) == 24
