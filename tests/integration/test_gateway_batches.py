"""Batches over HTTP: they are stored whole or not at all, shown by the state of their turns, cancelled, and fetched."""

# ruff: noqa: ANN401 - bodies and answers are any JSON
from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx2
import pytest
from sqlalchemy import event, func, select, text

from api_gateway.batches import session_order
from api_gateway.batches.creation import LOOKED_AT_A_S
from api_gateway.batches.requests import MOST_REQUESTS
from api_gateway.batches.store import RESULTS_PAGE, Batches
from api_gateway.database import chunks_of, create_engine, writer_of
from api_gateway.problems import MOST_PROBLEMS
from harness_worker.schema import batches, idempotency_keys, messages, sessions, turn_events, turns, webhooks
from harness_worker.testing.waiting import wait_until
from harness_worker.wire import DEFAULT_TENANT, QUEUE_LOOK_S
from tests.integration.gateway_kit import NOWHERE, Gateway, gateway_on, problem_of

ZEROS = dict.fromkeys(("queued", "running", "requires_action", "completed", "incomplete", "failed", "cancelled"), 0)
NOTHING_OWN: list[dict[str, Any]] = [{}]
ALL = (batches, turns, messages, turn_events, sessions, idempotency_keys)


def numbers(gateway: Gateway) -> list[int]:
    """The number of rows in each table that a post writes to."""
    with gateway.worker.engine.connect() as connection:
        return [connection.execute(select(func.count()).select_from(table)).scalar_one() for table in ALL]


def batch_now(gateway: Gateway, batch: dict[str, Any]) -> dict[str, Any]:
    """The batch as it is now."""
    answer = gateway.http.get(f"/v1/batches/{batch['id']}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def results(gateway: Gateway, batch: dict[str, Any], **query: str) -> list[dict[str, Any]]:
    """The batch's results."""
    answer = gateway.http.get(batch["results_url"], params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


# --- posting ----------------------------------------------------------------------------------------------------------


def test_batch_is_stored_with_all_its_turns(gateway: Gateway) -> None:
    """They are ordinary turns in the order of the requests, each with its row, message, event and wake-up."""
    response = gateway.post_batch(
        {"input": "a", "metadata": {"n": "0"}}, {"input": "b", "priority": "interactive", "budget": {"max_steps": 1}},
        metadata={"clé": "ü"},
    )  # fmt: skip
    assert response.status_code == 202, response.text
    batch = response.json()
    assert response.headers["location"] == f"/v1/batches/{batch['id']}"
    assert batch == batch_now(gateway, batch)
    assert batch.pop("created_at").endswith("Z")
    assert batch == {
        "id": batch["id"],
        "status": "in_progress",
        "total": 2,
        "counts": {**ZEROS, "queued": 2},
        "metadata": {"clé": "ü"},
        "ended_at": None,
        "results_url": f"/v1/batches/{batch['id']}/results",
    }
    ids = gateway.ids(batch_id=batch["id"])[::-1]
    shown = [gateway.turn(turn_id) for turn_id in ids]
    assert [(turn["batch_id"], turn["custom_id"], turn["input"]) for turn in shown] == [
        (batch["id"], "t0", "a"),
        (batch["id"], "t1", "b"),
    ]
    assert [turn["budget"]["max_steps"] for turn in shown] == [6, 1]
    for turn_id, priority in zip(ids, ("batch", "interactive"), strict=True):
        wait_until(lambda: gateway.worker.wake_ups(turn_id, priority), "the wake-up")  # noqa: B023 - called at once
        events = gateway.http.get(f"/v1/turns/{turn_id}/events").json()["data"]
        assert [(event["seq"], event["type"]) for event in events] == [(1, "turn.queued")]
        (message,) = gateway.turn(turn_id, include="messages")["messages"]
        assert message["role"] == "user"
    assert numbers(gateway) == [1, 2, 2, 2, 2, 0]


def test_turn_of_a_batch_has_its_time_from_when_it_is_taken(gateway: Gateway) -> None:
    """Its deadline counts from its start; turns become due one after another, so that they hide no others."""
    _, ids = gateway.posted_batch(*[{"session_id": f"s{number}"} for number in range(3)], {"session_id": "s0"})
    rows = [gateway.worker.row(turn_id) for turn_id in ids]
    assert all(row.waits for row in rows)
    late_s = [row.wake_at - row.created_at for row in rows]
    assert late_s == pytest.approx([0, 1 / LOOKED_AT_A_S, 2 / LOOKED_AT_A_S, 3 / LOOKED_AT_A_S + QUEUE_LOOK_S])


def test_batch_that_cannot_be_stored_whole_is_not_stored(gateway: Gateway) -> None:
    """Whichever row cannot be written, no other is written either, and the key can be used again."""
    for missing in ("batches", "turns", "messages", "turn_events"):
        with gateway.worker.engine.begin() as connection:
            connection.execute(text(f"ALTER TABLE {missing} RENAME TO away"))
        refused = gateway.post_batch({}, {}, key="once")
        with gateway.worker.engine.begin() as connection:
            connection.execute(text(f"ALTER TABLE away RENAME TO {missing}"))
        assert refused.status_code >= 500, missing
        assert numbers(gateway) == [0] * len(ALL), missing
    assert gateway.post_batch({}, {}, key="once").status_code == 202


@pytest.mark.one_database("sqlite")
def test_what_is_wrong_with_a_batch_is_told_with_its_place(gateway: Gateway) -> None:
    """Everything is checked before anything is stored; of very many errors only some are listed."""
    good = {"custom_id": "a", "params": gateway.defaults}

    def wrong(*requests: Any, **body: Any) -> list[tuple[list[Any], str]]:
        refused = gateway.http.post("/v1/batches", json={"requests": requests, **body})
        problem = problem_of(refused, 422, "invalid_request")
        return [(error["loc"], error["msg"]) for error in problem["errors"]]

    def places(*requests: Any, **body: Any) -> list[list[Any]]:
        return [loc for loc, _ in wrong(*requests, **body)]

    at = ["body", "requests"]
    assert places() == [at]
    assert places({**good, "custom_id": ""}) == [[*at, 0, "custom_id"]]
    assert places(good, {**good, "custom_id": "x" * 65}) == [[*at, 1, "custom_id"]]
    assert places({**good, "custom_id": "a b"}, {**good, "custom_id": "a\n"}) == [
        [*at, 0, "custom_id"],
        [*at, 1, "custom_id"],
    ]
    assert wrong(good, good) == [([*at, 1, "custom_id"], "there is another 'a' before it")]
    assert places(good, {"custom_id": "b", "params": {"agent": "support"}}) == [[*at, 1, "params", "input"]]
    assert places({"custom_id": "b", "params": {**gateway.defaults, "input": "\0"}}) == [[*at, 0, "params", "input"]]
    for params in ({"multitask": "interrupt"}, {"wait": 1}, {"metadata": {"a": 1}}):
        (place,) = places({"custom_id": "b", "params": {**gateway.defaults, **params}})
        assert place[:4] == [*at, 0, "params"]
    told = wrong({"custom_id": "b", "params": {**gateway.defaults, "webhook": "https://example.com"}})
    assert told[0][0] == [*at, 0, "params", "webhook"]
    assert places(good, metadata={"a": 1}) == [["body", "metadata", "a"]]
    assert places(good, agent="support") == [["body", "agent"]]
    assert places(*[good] * (MOST_REQUESTS + 1)) == [at]
    many = wrong(*[{"custom_id": "!", "params": {}}] * 500)
    assert len(many) == MOST_PROBLEMS + 1
    assert many[-1] == (["body"], f"and {1_500 - MOST_PROBLEMS} more are wrong")
    assert numbers(gateway) == [0] * len(ALL)


@pytest.mark.one_database("sqlite")
def test_batch_for_an_unknown_agent_is_404_and_names_the_place(gateway: Gateway) -> None:
    """The answer is as for a single turn, and nothing is stored."""
    problem = problem_of(gateway.post_batch({}, {"agent": "suport"}, {"agent": "suport"}), 404, "unknown_agent")
    assert problem["detail"].startswith("requests.1.params: there is no agent 'suport'; there are: support")
    assert problem["agents"] == ["support"]
    assert [error["loc"] for error in problem["errors"]] == [["body", "requests", 1, "params", "agent"]]
    several = problem_of(gateway.post_batch({"agent": "b"}, {"agent": "b"}, {"agent": "a"}), 404, "unknown_agent")
    assert several["detail"].endswith("'b'; requests.2.params: there is no agent 'a'; there are: support")
    assert [error["loc"][2] for error in several["errors"]] == [0, 2]
    assert numbers(gateway) == [0] * len(ALL)


@pytest.mark.one_database("sqlite")
@pytest.mark.one_database("sqlite")
@pytest.mark.gateway(redis_url=NOWHERE)
def test_batch_is_accepted_while_the_broker_is_down(gateway: Gateway) -> None:
    """The rows are stored without a broker, and the gateway keeps working."""
    batch, ids = gateway.posted_batch({}, {})
    assert len(ids) == 2
    assert gateway.http.post(f"/v1/batches/{batch['id']}/cancel").status_code == 202
    assert batch_now(gateway, batch)["status"] == "canceling"


@pytest.mark.one_database("sqlite")
def test_repeat_of_a_batch_is_the_same_batch_as_it_is_now(gateway: Gateway) -> None:
    """One key makes one batch; it is refused with another body or for a turn, and a refused post does not use it."""
    problem_of(gateway.post_batch({"agent": "nobody"}, key="k"), 404, "unknown_agent")
    first = gateway.post_batch({}, {}, key="k")
    (turn_id, _) = gateway.ids(batch_id=first.json()["id"])
    gateway.worker.finish(turn_id)
    again = gateway.post_batch({}, {}, key="k")
    assert (again.status_code, again.headers["location"]) == (202, first.headers["location"])
    assert again.json()["counts"] == {**ZEROS, "queued": 1, "completed": 1}
    assert numbers(gateway)[:2] == [1, 2]
    problem_of(gateway.post_batch({}, key="k"), 422, "idempotency_mismatch")
    problem_of(gateway.post(key="k"), 422, "idempotency_mismatch")


@pytest.mark.one_database("postgres")
def test_repeats_at_once_make_one_batch(gateway: Gateway) -> None:
    """The second post waits for the first, and is answered with its batch."""
    with ThreadPoolExecutor(4) as threads:
        posts = [threads.submit(gateway.post_batch, *NOTHING_OWN * 50, key="k") for _ in range(4)]
    answers = [post.result() for post in posts]
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert numbers(gateway)[:2] == [1, 50]


def test_turns_of_one_session_wait_for_each_other(gateway: Gateway) -> None:
    """They also wait for earlier turns of the session; only a turn that waits for none gets a wake-up now."""
    before = gateway.posted(session_id="busy")
    over = gateway.posted(session_id="free")
    gateway.worker.finish(over["id"])
    _, ids = gateway.posted_batch(
        {"session_id": "busy"}, {"session_id": "free"}, {"session_id": "new"}, {"session_id": "busy"}, {}
    )
    rows = [gateway.worker.row(turn_id) for turn_id in ids]
    assert [(row.session_id, row.number, row.followed) for row in rows[:4]] == [
        ("busy", 2, True),
        ("free", 2, False),
        ("new", 1, False),
        ("busy", 3, False),
    ]
    assert gateway.worker.row(before["id"]).followed
    wait_until(lambda: gateway.worker.wake_ups(ids[-1], "batch"), "the last wake-up")
    assert [len(gateway.worker.wake_ups(turn_id, "batch")) for turn_id in ids] == [0, 1, 1, 0, 1]


def test_batches_of_the_same_sessions_at_once_are_all_stored(postgres_url: str, gateway_redis: str) -> None:
    """Whatever order the batches name the sessions in, there is no deadlock, and no number is given twice."""
    names = [{"session_id": f"s{number}"} for number in range(5)]
    middle = select(sessions).where(sessions.c.id == "s2").with_for_update()
    with gateway_on(postgres_url, gateway_redis) as gateway, ThreadPoolExecutor(2) as threads:
        gateway.posted_batch(*names)
        with gateway.worker.engine.begin() as connection:
            connection.execute(middle)
            posts = [threads.submit(gateway.post_batch, *order) for order in (names, names[::-1])]
            wait_until(lambda: _waiting(gateway) == 2, "both to wait")
        assert [post.result().status_code for post in posts] == [202] * 2
        with gateway.worker.engine.connect() as connection:
            given = connection.execute(select(turns.c.session_id, turns.c.number)).all()
    assert sorted(map(tuple, given)) == sorted((name["session_id"], n) for name in names for n in (1, 2, 3))


def test_batch_is_cancelled_while_its_sessions_get_further_turns(postgres_url: str, gateway_redis: str) -> None:
    """Both lock the same turns; whatever order the first batch named the sessions in, there is no deadlock."""
    names = [{"session_id": f"s{number}"} for number in range(5)]
    middle = select(turns).where(turns.c.session_id == "s2").with_for_update(key_share=True)
    with gateway_on(postgres_url, gateway_redis) as gateway, ThreadPoolExecutor(2) as threads:
        batch, _ = gateway.posted_batch(*names[::-1])
        with gateway.worker.engine.begin() as connection:
            connection.execute(middle)
            cancel = threads.submit(gateway.http.post, f"/v1/batches/{batch['id']}/cancel")
            post = threads.submit(gateway.post_batch, *names)
            wait_until(lambda: _waiting(gateway) == 2, "both to wait")
        assert [each.result().status_code for each in (cancel, post)] == [202] * 2


def test_batch_has_all_its_places_before_it_locks_a_turn(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database orders the turns to lock. If Python's order of sessions mattered too, a cancel could deadlock."""
    monkeypatch.setattr(session_order, "chunks_of", partial(chunks_of, size=1))
    gateway.posted_batch({"session_id": "a"}, {"session_id": "B"})
    told = list[str]()

    async def take() -> None:
        engine = create_engine(gateway.settings.database_url)
        writer = writer_of(engine)
        async with writer.begin() as connection:
            event.listen(writer.sync_engine, "before_cursor_execute", lambda *about: told.append(about[2].split()[0]))
            await session_order.taken_places(connection, DEFAULT_TENANT, ["a", "B"])
        await engine.dispose()

    asyncio.run(take())
    assert told == ["INSERT", "INSERT", "SELECT", "UPDATE", "UPDATE"]


def _waiting(gateway: Gateway) -> int:
    """How many connections to the database wait for a lock."""
    locked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with gateway.worker.engine.connect() as connection:
        return connection.execute(text(locked)).scalar_one()


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.one_database("sqlite")
@pytest.mark.usefixtures("uncounted")
@pytest.mark.gateway(tenant_queue=3, tenant_rate="9/hour")
def test_batch_that_does_not_fit_is_refused_whole(gateway: Gateway) -> None:
    """Its turns count like as many posts; a batch that could never fit is refused without ``Retry-After``."""
    for many, code, words in (
        (4, "queue_full", "4 turns never fit: at most 3 of this tenant may be queued or running"),
        (10, "rate_limited", "10 turns never fit into this tenant's rate (9 per hour)"),
    ):
        never = gateway.post_batch(*NOTHING_OWN * many)
        assert problem_of(never, 429, code)["detail"].startswith(words)
        assert "retry-after" not in never.headers
    _, ids = gateway.posted_batch({}, {})  # 4 + 2 of 9
    full = gateway.post_batch({}, {})  # 8 of 9
    problem_of(full, 429, "queue_full")
    assert int(full.headers["retry-after"]) >= 1
    assert len(gateway.ids()) == 2
    gateway.worker.finish(ids[0])
    often = gateway.post_batch({}, {})
    problem_of(often, 429, "rate_limited")
    assert int(often.headers["retry-after"]) >= 1
    assert gateway.post_batch({}).status_code == 202


@pytest.mark.one_database("sqlite")
@pytest.mark.gateway(tenant_dollars=1)
def test_batch_of_a_tenant_whose_budget_is_used_up_is_refused(gateway: Gateway) -> None:
    """It is refused like a single turn; a repeat of an earlier batch is still answered."""
    first = gateway.post_batch({}, key="once")
    (turn_id,) = gateway.ids()
    used = gateway.worker.row(turn_id).used
    gateway.worker.change(turn_id, used={**used, "dollars": 2.0})
    answer = wait_until(lambda: _refused(gateway), "the budget to be used up")
    problem_of(answer, 402, "budget_exhausted")
    assert gateway.post_batch({}, key="once").json()["id"] == first.json()["id"]


def _refused(gateway: Gateway) -> httpx2.Response | None:
    answer = gateway.post_batch({}, {})
    return answer if answer.status_code == 402 else None


# --- how it stands ----------------------------------------------------------------------------------------------------


def test_batch_stands_as_its_turns_do(gateway: Gateway) -> None:
    """A batch has ended when the last of its turns has; turns outside of it do not count."""
    gateway.posted()
    gateway.posted_batch({})
    batch, ids = gateway.posted_batch({}, {}, {}, {})
    gateway.worker.change(ids[0], status="running")
    gateway.worker.change(ids[1], status="requires_action")
    gateway.worker.finish(ids[2], "failed")
    gateway.worker.finish(ids[3], "completed")
    now = batch_now(gateway, batch)
    assert (now["status"], now["ended_at"]) == ("in_progress", None)
    assert now["counts"] == {**ZEROS, "running": 1, "requires_action": 1, "failed": 1, "completed": 1}
    gateway.worker.finish(ids[0], "incomplete")
    gateway.worker.finish(ids[1], "cancelled")
    gateway.worker.change(ids[0], finished_at=1_700_000_009.0)
    ended = batch_now(gateway, batch)
    assert (ended["status"], ended["ended_at"], ended["total"]) == ("ended", "2023-11-14T22:13:29.000000Z", 4)
    assert ended["counts"] == {**ZEROS, "incomplete": 1, "cancelled": 1, "failed": 1, "completed": 1}
    assert ended["created_at"] == batch["created_at"]


@pytest.mark.one_database("sqlite")
def test_list_is_newest_first_and_goes_on_after_its_page(gateway: Gateway) -> None:
    """Each batch in the list is shown in its current state."""
    made = [gateway.posted_batch({})[0] for _ in range(3)]
    first = gateway.http.get("/v1/batches", params={"limit": 2}).json()
    assert first["data"] == made[:0:-1]
    rest = gateway.http.get("/v1/batches", params={"after": first["next"]}).json()
    assert rest == {"data": made[:1], "next": None}
    problem_of(gateway.http.get("/v1/batches", params={"status": "ended"}), 422, "invalid_request")


@pytest.mark.one_database("sqlite")
def test_batch_that_never_was_is_404(gateway: Gateway) -> None:
    """This holds for any unknown id, whatever it looks like."""
    for never in ("never-was", "x" * 65, "a%00b"):
        for method, path in (("GET", ""), ("GET", "/results"), ("POST", "/cancel")):
            problem_of(gateway.http.request(method, f"/v1/batches/{never}{path}"), 404, "not_found")


# --- stopping ---------------------------------------------------------------------------------------------------------


def test_cancel_asks_what_is_not_over_to_stop(gateway: Gateway) -> None:
    """Started turns become due now; waiting ones are marked and keep their time, so that not all are due at once."""
    batch, ids = gateway.posted_batch({}, {}, {}, {})
    wait_until(lambda: gateway.worker.wake_ups(ids[-1], "batch"), "the last wake-up")
    before = [gateway.worker.row(turn_id) for turn_id in ids]
    gateway.worker.change(ids[0], status="running", wake_at=9e9)
    gateway.worker.change(ids[1], status="requires_action", wake_at=9e9)
    gateway.worker.finish(ids[2])
    cancelled = gateway.http.post(f"/v1/batches/{batch['id']}/cancel")
    assert (cancelled.status_code, cancelled.json()["status"]) == (202, "canceling")
    rows = [gateway.worker.row(turn_id) for turn_id in ids]
    assert [row.cancel_requested for row in rows] == [True, True, False, True]
    assert [row.wakes - was.wakes for row, was in zip(rows, before, strict=True)] == [1, 1, 0, 1]
    assert all(row.wake_at < row.created_at + 3_600 for row in rows[:2])
    assert rows[3].wake_at == before[3].wake_at
    for turn_id, many in ((ids[0], 2), (ids[1], 2), (ids[3], 2), (ids[2], 1)):
        wait_until(lambda: len(gateway.worker.wake_ups(turn_id, "batch")) == many, "its wake-up")  # noqa: B023 - called at once
    for turn_id in (ids[0], ids[1], ids[3]):
        gateway.worker.finish(turn_id, "cancelled")
    again = gateway.http.post(f"/v1/batches/{batch['id']}/cancel")
    assert (again.status_code, again.json()) == (200, batch_now(gateway, batch))
    assert again.json()["status"] == "ended"
    assert not gateway.worker.row(ids[2]).cancel_requested


@pytest.mark.one_database("sqlite")
@pytest.mark.gateway(redis_url=NOWHERE)
def test_cancel_asks_a_broker_that_is_away_but_once(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    """Asking once per started turn took hours for a large batch, and delayed wake-ups of others."""
    batch, ids = gateway.posted_batch({}, {}, {}, {})
    wait_until(lambda: "4 turns are stored" in caplog.text, "the broker to be away")
    for turn_id in ids[:3]:
        gateway.worker.change(turn_id, status="running")
    caplog.clear()
    assert gateway.http.post(f"/v1/batches/{batch['id']}/cancel").status_code == 202
    wait_until(lambda: "1 turns are stored" in caplog.text, "what waits to be told, last")
    told = [record.getMessage() for record in caplog.records if record.name == "api_gateway.publisher"]
    assert sorted(each.partition(":")[0] for each in told) == [
        "1 turns are stored, but their wake-ups were not sent",
        "3 turns are cancelled, but workers have not been told yet",
        "3 turns are stored, but their wake-ups were not sent",
    ]


@pytest.mark.one_database("sqlite")
def test_batches_have_nothing_of_each_other(gateway: Gateway) -> None:
    """The state, the cancel and the results of a batch are of its own turns alone."""
    (other, others), (batch, ids) = (gateway.posted_batch({}, {}) for _ in range(2))
    for ended in (others[0], ids[0], gateway.posted()["id"]):
        gateway.worker.finish(ended, live=False)
    assert [line["turn"]["id"] for line in results(gateway, batch)] == [ids[0]]
    before = batch_now(gateway, other)
    assert gateway.http.post(f"/v1/batches/{batch['id']}/cancel").json()["status"] == "canceling"
    assert batch_now(gateway, other) == before
    assert [gateway.worker.row(each).cancel_requested for each in (ids[1], others[1])] == [True, False]


# --- results ----------------------------------------------------------------------------------------------------------


def test_results_are_the_turns_that_are_over_in_their_order(gateway: Gateway) -> None:
    """Each line has the turn as GET shows it; results can be fetched from any point on."""
    many = RESULTS_PAGE + 3
    batch, ids = gateway.posted_batch(*[{"input": f"{number}\n\u2028\x85\v"} for number in range(many)])
    assert results(gateway, batch) == []
    for turn_id in reversed(ids):
        gateway.worker.finish(turn_id, live=False)
    gateway.worker.change(ids[1], status="running", finished_at=None)
    for position in (1, 0):
        gateway.worker.call(ids[2], 0, position)
    found = results(gateway, batch)
    left = [number for number in range(many) if number != 1]
    assert [line["custom_id"] for line in found] == [f"t{number}" for number in left]
    assert [line["turn"]["id"] for line in found] == [ids[number] for number in left]
    assert found[1]["turn"] == gateway.turn(ids[2])
    assert [call["position"] for call in found[1]["turn"]["calls"]] == [0, 1]
    assert results(gateway, batch, after=ids[many - 3]) == found[-2:]
    assert results(gateway, batch, after=ids[-1]) == []
    other = gateway.posted()["id"]
    for after in ("", "zzz", batch["id"], other, gateway.posted_batch({})[1][0]):
        refused = gateway.http.get(batch["results_url"], params={"after": after})
        assert problem_of(refused, 422, "invalid_request")["errors"][0]["loc"] == ["query", "after"]


def portions(gateway: Gateway, batch_id: str, *after: str) -> list[list[str]]:
    """The turns that are read at once for a batch's results, from its beginning and after each of these."""

    async def read() -> list[list[str]]:
        engine = create_engine(gateway.settings.database_url)
        found = [await Batches(engine, DEFAULT_TENANT).results(batch_id, each) for each in ("", *after)]
        await engine.dispose()
        return [[line.turn.id for line in lines] for lines in found]

    return asyncio.run(read())


@pytest.mark.one_database("sqlite")
def test_results_of_long_turns_are_read_a_few_at_a_time(gateway: Gateway) -> None:
    """At most ``MOST_BYTES`` of their texts, or one turn, are in memory at once; yet all are given."""
    batch, ids = gateway.posted_batch({}, {}, {}, {})
    for turn_id, text_size in zip(ids, [4_000_000, 4_000_000, 9_000_000, 1], strict=True):
        gateway.worker.finish(turn_id, live=False)
        gateway.worker.change(turn_id, input="x", output_text="x" * (text_size - 1))
    assert portions(gateway, batch["id"], ids[1], ids[2]) == [ids[:2], ids[2:3], ids[3:]]
    assert [line["turn"]["id"] for line in results(gateway, batch)] == ids


def test_results_with_long_calls_are_read_a_few_at_a_time(gateway: Gateway) -> None:
    """Calls count too: their arguments, what a person changed of them, and their results."""
    batch, ids = gateway.posted_batch({}, {}, {}, {})
    long = {"text": "x" * 3_000_000}
    for turn_id in ids:
        gateway.worker.finish(turn_id, live=False)
        gateway.worker.call(turn_id, 0, 0, status="ended", arguments={})
    gateway.worker.call(ids[0], 0, 1, arguments=long)
    gateway.worker.call(ids[1], 0, 1, approval={"expires_at": 2e9, "decision": "approve", "arguments": long})
    gateway.worker.call(ids[2], 0, 1, outcome={"kind": "ToolExecutionResult", "content": "x" * 3_000_000})
    assert portions(gateway, batch["id"], ids[1]) == [ids[:2], ids[2:]]
    assert [line["turn"]["id"] for line in results(gateway, batch)] == ids


def test_results_that_cannot_be_read_are_a_problem_not_an_empty_file(gateway: Gateway) -> None:
    """If the database is away, the answer is an error, not an empty list of results."""
    batch, (turn_id,) = gateway.posted_batch({})
    gateway.worker.finish(turn_id)
    with gateway.worker.engine.begin() as connection:
        connection.execute(text("DROP TABLE tool_calls"))
    problem_of(gateway.http.get(batch["results_url"]), 503, "not_ready")


@pytest.mark.one_database("sqlite")
@pytest.mark.gateway(webhook_secret="x" * 32, webhook_private=True)
def test_turns_of_a_batch_may_have_webhooks(gateway: Gateway) -> None:
    """They have them just as single turns do."""
    url = "http://127.0.0.1:9/hook"
    _, ids = gateway.posted_batch({"webhook": url}, {})
    with gateway.worker.engine.connect() as connection:
        assert list(connection.execute(select(webhooks.c.turn_id)).scalars()) == ids[:1]
    assert gateway.http.get(f"/v1/turns/{ids[0]}/webhook").json()["url"] == url
