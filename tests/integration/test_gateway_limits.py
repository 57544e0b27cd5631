"""A tenant's limits: which posts are refused, with which answer, and which are not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, TypeAlias

import httpx2
import openai
import pytest
from openai import OpenAI
from sqlalchemy import event, select, text
from sqlalchemy.exc import OperationalError

from api_gateway.database import create_engine
from api_gateway.limits import rates, spending
from api_gateway.limits.rates import LEFT_ALONE_S, PREFIX
from api_gateway.limits.spending import Allowance, Spending
from harness_worker.adapters.embedded.ports import free_port
from harness_worker.adapters.embedded.valkey import server_url
from harness_worker.schema import idempotency_keys
from harness_worker.testing.services import valkey_service
from harness_worker.testing.waiting import wait_until
from harness_worker.wire import DEFAULT_TENANT
from tests.integration.gateway_kit import AGENT, Gateway, gateway_on, problem_of, redis_at, serving
from tests.stacks import run_harness

Apart: TypeAlias = Callable[[str], AbstractContextManager[Gateway]]
"""Serves a gateway that counts in the Redis with that URL."""


@contextmanager
def openai_client(
    gateway: Gateway, *, max_retries: int = 0, on_request: Callable[[httpx2.Request], object] = repr
) -> Generator[OpenAI]:
    """The official client."""
    with httpx2.Client(trust_env=False, event_hooks={"request": [on_request]}) as http:
        yield OpenAI(base_url=f"{gateway.url}/v1", api_key="any", http_client=http, max_retries=max_retries)


def ask(client: OpenAI) -> Any:  # noqa: ANN401 - its type says nothing here
    """Ask for a response in the background."""
    create: Any = client.responses.create
    return create(model=AGENT, input="Where is it?", background=True)


@pytest.mark.gateway(tenant_queue=2)
def test_full_queue_takes_no_other_turn_until_one_has_ended(gateway: Gateway) -> None:
    """Queued and running turns count; a refused post is told when to try again, and leaves nothing behind."""
    first, second = gateway.posted(), gateway.posted()
    gateway.worker.change(second["id"], status="running")
    refused = gateway.post()
    problem = problem_of(refused, 429, "queue_full")
    assert problem["detail"].startswith("this tenant has as many turns queued or running as it may (2)")
    assert int(refused.headers["retry-after"]) >= 1
    assert gateway.ids() == [second["id"], first["id"]]
    gateway.worker.finish(first["id"])
    assert gateway.post().status_code == 202


@pytest.mark.gateway(tenant_queue=1)
@pytest.mark.parametrize(
    "columns",
    [
        {"status": "requires_action"},
        {"status": "running", "parked_at": 1.0},
        {"parent_id": "another", "parent_call_id": "0.0"},
        {"tenant": "another"},
    ],
    ids=["waits for a person", "children wait for people", "another turn asked for it", "another tenant"],
)
def test_turn_that_occupies_nothing_of_the_tenants_does_not_count(gateway: Gateway, columns: dict[str, Any]) -> None:
    """A wait for people occupies no worker and may take a day; a child is part of the turn that asked for it."""
    gateway.worker.change(gateway.posted()["id"], **columns)
    assert gateway.post().status_code == 202
    assert gateway.post().status_code == 429


@pytest.mark.gateway(tenant_queue=1)
def test_repeat_is_answered_though_the_queue_is_full(gateway: Gateway) -> None:
    """A repeated post makes no new turn."""
    first = gateway.post(key="once")
    repeat = gateway.post(key="once")
    assert (repeat.status_code, repeat.json()["id"]) == (202, first.json()["id"])


@pytest.mark.gateway(tenant_queue=1)
def test_refused_post_does_not_use_its_key_up(gateway: Gateway) -> None:
    """Once there is room, the same request makes its turn."""
    first = gateway.posted()
    problem_of(gateway.post(key="later"), 429, "queue_full")
    gateway.worker.finish(first["id"])
    assert gateway.post(key="later").status_code == 202


@pytest.mark.gateway(tenant_queue=1)
def test_wrong_request_is_told_so_though_the_queue_is_full(gateway: Gateway) -> None:
    """An invalid request is 422, because waiting would not help."""
    gateway.posted()
    problem_of(gateway.post(agent="nobody"), 404, "unknown_agent")


@pytest.mark.gateway(tenant_queue=3)
def test_posts_at_once_overshoot_by_no_more_than_their_number(gateway: Gateway) -> None:
    """Simultaneous posts may not see each other's turns, but any later post does."""
    gateway.posted()
    with ThreadPoolExecutor(4) as threads:
        codes = [each.result().status_code for each in [threads.submit(gateway.post) for _ in range(12)]]
    assert set(codes) == {202, 429}
    assert 2 <= codes.count(202) <= 2 + 4
    assert gateway.post().status_code == 429


@pytest.mark.gateway(tenant_queue=1)
def test_command_line_says_why_its_question_is_refused(gateway: Gateway) -> None:
    """It prints the gateway's message, and its exit code is that of failed work."""
    gateway.posted()
    asked = run_harness("run", "Where is it?", "--agent", AGENT, "--url", gateway.url)
    assert (asked.returncode, asked.stdout) == (1, "")
    assert asked.stderr.startswith("harness: this tenant has as many turns queued or running as it may (1)")
    assert asked.stderr.endswith("(429 queue_full)\n")


@pytest.mark.gateway(tenant_queue=1)
def test_openai_client_is_told_that_the_queue_is_full(gateway: Gateway) -> None:
    """The client raises its error for too many requests, which it also retries by itself."""
    with openai_client(gateway) as client:
        ask(client)
        with pytest.raises(openai.RateLimitError) as refused:
            ask(client)
        assert (refused.value.code, refused.value.type) == ("queue_full", "rate_limit_exceeded")
        assert int(refused.value.response.headers["retry-after"]) >= 1


def spend(gateway: Gateway, dollars: float, *, ago_s: float = 0.0, **columns: Any) -> str:  # noqa: ANN401 - any column
    """Add a turn that was posted so long ago and has used so much; returns its id."""
    turn = gateway.posted()
    row = gateway.worker.row(turn["id"])
    used = {**row.used, "dollars": dollars}
    gateway.worker.change(turn["id"], used=used, created_at=row.created_at - ago_s, **columns)
    return turn["id"]


def refused_for_its_budget(gateway: Gateway) -> dict[str, Any]:
    """The refusal, once the gateway has read the usage, which takes it a fraction of a second here."""

    def refused() -> httpx2.Response | None:
        answer = gateway.post()
        return answer if answer.status_code == 402 else None

    answer = wait_until(refused, "the budget to be used up")
    problem_of(answer, 402, "budget_exhausted")
    return {**answer.json(), "retry_after_s": int(answer.headers["retry-after"])}


@pytest.mark.gateway(tenant_dollars=5)
def test_budget_of_a_day_that_is_used_up_takes_no_other_turn(gateway: Gateway) -> None:
    """The usage of running turns counts too; the refusal says how much is left of the day."""
    spend(gateway, 2.5)
    gateway.posted()
    spend(gateway, 2.5, status="running")
    refusal = refused_for_its_budget(gateway)
    assert refusal["detail"].startswith(
        "this tenant's turns of the last 24 hours have used the 5 dollars that they may"
    )
    assert 86_000 < refusal["retry_after_s"] <= 86_400


@pytest.mark.gateway(tenant_dollars=5)
def test_budget_goes_on_when_enough_of_it_is_a_day_old(gateway: Gateway) -> None:
    """``Retry-After`` is when the turn becomes a day old without which the newer ones are within the budget."""
    made = [
        spend(gateway, dollars, ago_s=hours * 3_600)
        for dollars, hours in ((9.0, 25), (1.0, 23), (3.5, 20), (0.4, 10), (1.5, 1))
    ]
    assert 4 * 3_600 - 60 < refused_for_its_budget(gateway)["retry_after_s"] <= 4 * 3_600
    gateway.worker.change(made[2], created_at=gateway.worker.row(made[2]).created_at - 4 * 3_600)
    wait_until(lambda: gateway.post().status_code == 202, "the budget to be free again")


@pytest.mark.one_database("sqlite")
def test_refusal_ends_when_it_said(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the reading took, and so would be reused."""
    monkeypatch.setattr(spending, "REMEMBERED", 1e9)
    turn_id = spend(gateway, 9.0, ago_s=86_400 - 600)

    async def ask_twice() -> tuple[Allowance, Allowance]:
        engine, loop = create_engine(gateway.settings.database_url), asyncio.get_running_loop()
        budget, clock = Spending(engine, 1.0), loop.time
        first = await budget.allowance(DEFAULT_TENANT)
        gateway.worker.change(turn_id, created_at=gateway.worker.row(turn_id).created_at - 600)
        monkeypatch.setattr(loop, "time", lambda: clock() + 600)
        second = await budget.allowance(DEFAULT_TENANT)
        await engine.dispose()
        return first, second

    first, second = asyncio.run(ask_twice())
    assert first.free_in_s is not None
    assert second.free_in_s is None


def test_posts_share_a_reading_of_their_budget_that_fails(sqlite_url: str) -> None:
    """With one reading each, posts would wait one after another for a database that does not answer."""
    asked: list[str] = []

    async def ask_together() -> list[Allowance | BaseException]:
        engine = create_engine(sqlite_url)
        event.listen(engine.sync_engine, "before_cursor_execute", lambda *told: asked.append(told[2]))
        async with engine.begin() as connection:
            await connection.execute(text("ALTER TABLE turns RENAME TO gone"))
        asked.clear()
        budget = Spending(engine, 5.0)
        told = await asyncio.gather(*(budget.allowance("a") for _ in range(10)), return_exceptions=True)
        await engine.dispose()
        return told

    told = asyncio.run(ask_together())
    assert {type(each) for each in told} == {OperationalError}
    assert len([statement for statement in asked if "turns" in statement]) == 1


@pytest.mark.gateway(tenant_dollars=1)
def test_what_is_older_or_anothers_does_not_count(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day is the last 24 hours, and only the tenant's own turns count."""
    monkeypatch.setattr(spending, "REMEMBERED", 0)  # so that the last post is judged by what there is then
    spend(gateway, 9.0, ago_s=86_460)
    spend(gateway, 9.0, tenant="another")
    spend(gateway, 0.9)
    assert gateway.post().status_code == 202


@pytest.mark.gateway(tenant_dollars=1)
def test_repeat_is_answered_though_the_budget_is_used_up(gateway: Gateway) -> None:
    """A repeat makes no new turn; and a post that is refused does not use its key up."""
    first = gateway.post(key="once")
    spend(gateway, 1.0)
    refused_for_its_budget(gateway)
    assert gateway.post(key="once").json()["id"] == first.json()["id"]
    problem_of(gateway.post(key="later"), 402, "budget_exhausted")
    with gateway.worker.engine.connect() as connection:
        assert list(connection.execute(select(idempotency_keys.c.key)).scalars()) == ["once"]


@pytest.mark.gateway(tenant_dollars=1)
def test_openai_client_does_not_ask_again_for_a_budget_that_is_used_up(gateway: Gateway) -> None:
    """Its error is not one that it retries, which could take hours, and it has the gateway's code."""
    asked: list[httpx2.Request] = []
    with openai_client(gateway, max_retries=2, on_request=asked.append) as client:
        spend(gateway, 1.0)
        refused_for_its_budget(gateway)
        with pytest.raises(openai.APIStatusError) as refused:
            ask(client)
        assert len(asked) == 1
        assert (refused.value.status_code, refused.value.code) == (402, "budget_exhausted")
        assert refused.value.type == "insufficient_quota"


def counted(gateway: Gateway) -> dict[str, int]:
    """The counts in Redis: for each key the number of posts."""
    client = gateway.worker.redis
    return {key: client.llen(key) for key in client.scan_iter(f"{PREFIX}:*")}


@pytest.mark.usefixtures("uncounted")
@pytest.mark.one_database("sqlite")
@pytest.mark.gateway(tenant_rate="3/2 minutes")
def test_posts_beyond_the_rate_are_refused_until_there_is_room(gateway: Gateway) -> None:
    """A refused post says when to try again, and is accepted then; refused posts do not count."""
    assert [gateway.post().status_code for _ in range(4)] == [202, 202, 202, 429]
    refused = gateway.post()
    problem = problem_of(refused, 429, "rate_limited")
    assert problem["detail"].startswith("this tenant has posted as many turns as it may (3 per 2 minutes)")
    assert 60 < int(refused.headers["retry-after"]) <= 120


@pytest.mark.usefixtures("uncounted")
@pytest.mark.one_database("sqlite")
@pytest.mark.gateway(tenant_rate="1/2 seconds")
def test_place_that_is_free_again_is_given(gateway: Gateway) -> None:
    """Once the window has moved on, posts are accepted again."""
    refused = wait_until(lambda: _refused(gateway.post()), "posts to be too many", interval_s=0.0)
    assert refused.headers["retry-after"] in {"1", "2"}
    wait_until(lambda: gateway.post().status_code == 202, "a place to be free")


def _refused(answer: httpx2.Response) -> httpx2.Response | None:
    return answer if answer.status_code == 429 else None


@pytest.mark.usefixtures("uncounted")
@pytest.mark.one_database("sqlite")
@pytest.mark.gateway(tenant_rate="2/hour")
def test_gateways_count_together(gateway: Gateway) -> None:
    """Two gateways together accept no more of a tenant's posts than one."""
    with serving(gateway.settings) as url:
        urls = (gateway.url, url, gateway.url, url)
        posts = [httpx2.post(f"{each}/v1/turns", json=gateway.defaults, timeout=30) for each in urls]
    assert [post.status_code for post in posts] == [202, 202, 429, 429]


@pytest.mark.usefixtures("uncounted")
@pytest.mark.one_database("sqlite")
@pytest.mark.gateway(tenant_rate="100/day; 1/hour")
def test_longer_window_does_not_count_what_a_shorter_one_refuses(gateway: Gateway) -> None:
    """A tenant that posts too fast for a while has not used up its posts of the day."""
    assert gateway.post().status_code == 202
    assert {gateway.post().status_code for _ in range(20)} == {429}
    assert [posts for key, posts in counted(gateway).items() if key.endswith("day")] == [1]


@pytest.mark.usefixtures("uncounted")
@pytest.mark.one_database("sqlite")
@pytest.mark.gateway(tenant_rate="2/hour; 9/day")
def test_counts_are_under_one_prefix_and_go_by_themselves(gateway: Gateway) -> None:
    """The keys in Redis show that they are the harness's, and all of them expire."""
    gateway.posted()
    assert len(counted(gateway)) == 2
    assert all(0 < gateway.worker.redis.ttl(key) <= 86_400 for key in counted(gateway))


@pytest.mark.usefixtures("uncounted")
@pytest.mark.one_database("sqlite")
@pytest.mark.gateway(tenant_rate="3/hour")
def test_request_that_is_wrong_does_not_count(gateway: Gateway) -> None:
    """An invalid request makes no turn, so it does not count; a repeat counts each time."""
    assert [gateway.post(budget={"no": 1}).status_code for _ in range(4)] == [422] * 4
    codes = [gateway.post(key="once").status_code for _ in range(4)]
    assert codes == [202, 202, 202, 429]


@pytest.mark.usefixtures("uncounted")
@pytest.mark.one_database("sqlite")
@pytest.mark.gateway(tenant_rate="1/2 seconds")
def test_openai_client_waits_as_long_as_it_is_told(gateway: Gateway) -> None:
    """With its own retries the client succeeds; without them it raises its error for too many requests."""
    with openai_client(gateway) as hasty, pytest.raises(openai.RateLimitError) as refused:
        [ask(hasty) for _ in range(20)]
    assert (refused.value.code, refused.value.type) == ("rate_limited", "rate_limit_exceeded")
    with openai_client(gateway, max_retries=2) as patient:
        assert [ask(patient).status for _ in range(2)] == ["queued", "queued"]


@pytest.fixture
def apart(sqlite_url: str, gateway_redis: str, monkeypatch: pytest.MonkeyPatch) -> Apart:
    """Gateways that count in a Redis of their own, which is not the broker."""
    monkeypatch.setattr(rates, "SILENCE_S", 2.0)  # a machine under load is no Redis that hangs
    return lambda url: gateway_on(
        sqlite_url, gateway_redis, redis_url=url, broker_url=gateway_redis, tenant_rate="1/hour"
    )


def test_posts_are_let_through_while_redis_is_away(apart: Apart, caplog: pytest.LogCaptureFixture) -> None:
    """Without counts nobody is refused; the log says so once, and counting resumes when Redis is back."""
    port = free_port()
    with apart(server_url(port)) as gateway:
        assert {gateway.post().status_code for _ in range(5)} == {202}
        began = time.monotonic()
        wait_until(lambda: time.monotonic() > began + LEFT_ALONE_S, "it to be asked again")
        assert gateway.post().status_code == 202
        with valkey_service(port):
            wait_until(lambda: gateway.post().status_code == 429, "posts to be counted")
    assert [record.levelname for record in caplog.records if "HARNESS_TENANT_RATE" in record.message] == ["WARNING"]


def test_redis_that_hangs_holds_nobody_up_for_long(apart: Apart, caplog: pytest.LogCaptureFixture) -> None:
    """A few posts wait for it briefly, and the others do not ask it."""
    with valkey_service() as url, apart(url) as gateway, closing(redis_at(url)) as client:
        assert [gateway.post().status_code for _ in range(2)] == [202, 429]
        client.execute_command("CLIENT", "PAUSE", 60_000, "ALL")
        began = time.monotonic()
        with ThreadPoolExecutor(8) as threads:
            codes = {each.result().status_code for each in [threads.submit(gateway.post) for _ in range(40)]}
        assert codes == {202}
        assert time.monotonic() - began < 40
    assert len([record for record in caplog.records if "HARNESS_TENANT_RATE" in record.message]) == 1
