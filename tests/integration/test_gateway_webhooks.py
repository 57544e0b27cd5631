"""Webhooks are delivered at least once, in order, with a signature, and only to the turn's receiver."""

# ruff: noqa: ANN401 - bodies and answers are any JSON
from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import pytest
from pydantic import SecretStr
from sqlalchemy import select, text, update
from standardwebhooks import WebhookVerificationError

from api_gateway.streams.live import RESTING_EVENTS
from api_gateway.webhooks.rules import BACKOFF_S, IN_FLIGHT_A_HOST, IN_FLIGHT_A_TENANT
from api_gateway.webhooks.sender import Sender
from harness_worker.schema import webhooks
from harness_worker.testing.waiting import wait_until
from tests.integration.gateway_kit import (
    NOWHERE,
    Gateway,
    bearer,
    gateway_process,
    keys_on,
    new_key,
    problem_of,
    serving,
)
from tests.receiver import SECRET, Receiver, answer

OLD_SECRET = "another-secret-of-the-operator"  # noqa: S105 - nobody's

pytestmark = pytest.mark.gateway(webhook_secret=SECRET, webhook_private=True)


@pytest.fixture(autouse=True)
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have polls come as often when they take long, and attempts last, and be made again, as the test lets them."""
    monkeypatch.setattr("api_gateway.webhooks.deliverer.POLLING_SHARE", 1.0)
    monkeypatch.setattr("api_gateway.webhooks.deliverer.Sender", partial(Sender, timeout_s=600.0))
    monkeypatch.setattr("api_gateway.webhooks.outbox.LEASE_S", 700.0)
    monkeypatch.setattr("api_gateway.webhooks.rules.BACKOFF_S", (600.0,) * len(BACKOFF_S))


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have live events alone start deliveries."""
    monkeypatch.setattr("api_gateway.webhooks.deliverer.POLL_S", 600.0)


def state(gateway: Gateway, turn_id: str) -> dict[str, Any]:
    """The webhook's state, as the gateway shows it."""
    response = gateway.http.get(f"/v1/turns/{turn_id}/webhook")
    assert response.status_code == 200, response.text
    return response.json()


def await_state(gateway: Gateway, turn_id: str, status: str) -> dict[str, Any]:
    """The webhook's state, once it has that status and the receiver has recorded a request."""

    def found() -> dict[str, Any] | None:
        now = state(gateway, turn_id)
        return now if now["status"] == status and now["last_attempt_at"] else None

    return wait_until(found, f"the webhook of {turn_id} to be {status}: {state(gateway, turn_id)}")


def pass_time(gateway: Gateway, turn_id: str) -> None:
    """Let the pause or the lease of a turn's webhook end now."""
    with gateway.worker.engine.begin() as connection:
        assert connection.execute(select(webhooks.c.due_at).where(webhooks.c.turn_id == turn_id)).scalar_one()
        connection.execute(update(webhooks).where(webhooks.c.turn_id == turn_id).values(due_at=0.0, lease_until=0.0))


def posted(gateway: Gateway, url: str, **body: Any) -> str:
    """A turn with a webhook."""
    return gateway.posted(webhook=url, **body)["id"]


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed", "cancelled"])
def test_end_of_a_turn_is_told_once_and_genuine(gateway: Gateway, other: Receiver, status: str) -> None:
    """It has the turn as lists show it, signed with the tenant's secret so that the receivers' library accepts it."""
    turn_id = posted(gateway, other.url + "?k=v", metadata={"order": "ö1"})
    assert state(gateway, turn_id)["status"] == "waiting"
    gateway.worker.finish(turn_id, status)
    (told,) = other.await_count(1)
    assert (told.path, told.headers["content-type"]) == ("/told?k=v", "application/json")
    assert "." not in told.id
    document = told.verified()
    (listed,) = gateway.http.get("/v1/turns").json()["data"]
    assert document.pop("timestamp") == "2023-11-14T22:13:20.250000Z"
    assert document == {"type": f"turn.{status}", "truncated": False, "data": listed}
    with pytest.raises(WebhookVerificationError):
        told.verified(tenant="other")
    now = await_state(gateway, turn_id, "delivered")
    assert (now["attempts"], now["status_code"], now["error"], now["next_attempt_at"]) == (1, 204, None, None)
    assert now["url"] == other.url + "?k=v"
    assert len(other.received) == 1


def test_failure_is_told_again_with_the_same_id_and_a_new_signature(gateway: Gateway, other: Receiver) -> None:
    """The next attempt comes after a pause; the id lets the receiver deduplicate."""
    other.answers.extend([answer(500), answer(200, b"ok")])
    turn_id = posted(gateway, other.url)
    gateway.worker.finish(turn_id)
    now = await_state(gateway, turn_id, "trying")
    assert (now["attempts"], now["status_code"], now["error"]) == (1, 500, "answered 500")
    assert now["last_attempt_at"] < now["next_attempt_at"]
    assert len(other.received) == 1
    pass_time(gateway, turn_id)
    first, second = other.await_count(2)
    assert first.id == second.id
    assert first.verified() == second.verified()
    assert await_state(gateway, turn_id, "delivered")["attempts"] == 2


def test_receiver_that_is_gone_is_told_nothing_more(gateway: Gateway, other: Receiver) -> None:
    """After 410 no later event of the turn is delivered, not even its end."""
    other.answers.append(answer(410))
    turn_id = posted(gateway, other.url)
    gateway.worker.change(turn_id, status="requires_action")
    gateway.worker.event(turn_id, "turn.requires_action")
    assert await_state(gateway, turn_id, "given_up")["error"] == "answered 410"
    gateway.worker.finish(turn_id)
    again = posted(gateway, other.url)
    gateway.worker.finish(again)
    await_state(gateway, again, "delivered")
    assert [told.id.partition("_")[0] for told in other.received] == [turn_id, again]


def test_last_failure_gives_up_and_says_so(gateway: Gateway, other: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """After about eighteen hours the log names the turn and the host, but not the rest of the URL."""
    other.answers.append(answer(404))
    turn_id = posted(gateway, other.url + "/hidden?token=hidden")
    with gateway.worker.engine.begin() as connection:  # as if seven tries had failed and two had died
        last = {"seq": 2, "attempt": 9, "failures": 7, "error": "answered 404", "at": 1.0}
        connection.execute(update(webhooks).where(webhooks.c.turn_id == turn_id).values(last))
    gateway.worker.finish(turn_id)
    now = await_state(gateway, turn_id, "given_up")
    assert (now["attempts"], now["status_code"]) == (10, 404)
    (line,) = wait_until(lambda: _said(caplog, "given up"), "the log to say so")
    assert line == f"the webhook of turn {turn_id} to 127.0.0.1 is given up after 10 attempts: answered 404"


def test_tries_that_died_with_their_gateways_use_up_no_pause(gateway: Gateway, other: Receiver) -> None:
    """Only failed attempts count, so killed gateways do not use up the receiver's attempts."""
    other.answers.append(answer(500))
    turn_id = posted(gateway, other.url)
    with gateway.worker.engine.begin() as connection:
        connection.execute(update(webhooks).where(webhooks.c.turn_id == turn_id).values(seq=2, attempt=9))
    gateway.worker.finish(turn_id)
    assert await_state(gateway, turn_id, "trying")["attempts"] == 10


def test_turn_that_parks_and_ends_is_told_twice_in_order(gateway: Gateway, other: Receiver) -> None:
    """First comes the wait, with its questions, and then the end."""
    turn_id = posted(gateway, other.url)
    approval = {"expires_at": 1_900_000_000.0, "decision": None, "reason": None, "arguments": None}
    gateway.worker.call(turn_id, 0, 0, approval={**approval, "is_resolved": False})
    gateway.worker.change(turn_id, status="requires_action")
    gateway.worker.event(turn_id, "turn.requires_action")
    assert await_state(gateway, turn_id, "waiting")["event_seq"] == 2
    gateway.worker.change(turn_id, status="running")
    gateway.worker.event(turn_id, "turn.redelivered")
    gateway.worker.finish(turn_id)
    parked, ended = (told.verified() for told in other.await_count(2))
    assert (parked["type"], ended["type"]) == ("turn.requires_action", "turn.completed")
    assert [action["call_id"] for action in parked["data"]["required_actions"]] == ["0.0"]
    assert [told.id for told in other.received] == [f"{turn_id}_2", f"{turn_id}_4"]
    assert await_state(gateway, turn_id, "delivered")["event_seq"] == 4


@pytest.mark.one_database("postgres")
def test_wait_of_a_turn_below_is_told_of_the_turn_with_the_webhook(gateway: Gateway, other: Receiver) -> None:
    """The webhook has the question, and the turn to answer."""
    turn_id, below = posted(gateway, other.url), gateway.posted()["id"]
    approval = {"expires_at": 1_900_000_000.0, "decision": None, "reason": None, "arguments": None}
    gateway.worker.call(below, 0, 0, approval={**approval, "is_resolved": False})
    gateway.worker.change(turn_id, status="running", parked_below=[{"turn_id": below, "fence": 1}])
    gateway.worker.event(turn_id, "subagent.requires_action", call_id="0.0")
    (told,) = other.await_count(1)
    body = told.verified()
    assert (body["type"], body["data"]["id"]) == ("subagent.requires_action", turn_id)
    assert [action["turn_id"] for action in body["data"]["subagent_actions"]] == [below]


def test_newer_event_does_not_wait_for_an_older_one(gateway: Gateway, other: Receiver) -> None:
    """The end is delivered at once, even if delivering the wait has failed and is paused."""
    other.answers.append(answer(500))
    turn_id = posted(gateway, other.url)
    gateway.worker.change(turn_id, status="requires_action")
    gateway.worker.event(turn_id, "turn.requires_action")
    await_state(gateway, turn_id, "trying")
    gateway.worker.finish(turn_id)
    assert await_state(gateway, turn_id, "delivered")["attempts"] == 1
    assert [told.verified()["type"] for told in other.received] == ["turn.requires_action", "turn.completed"]


@pytest.mark.one_database("postgres")
@pytest.mark.gateway(redis_url=NOWHERE)
def test_end_that_no_live_event_told_is_told(gateway: Gateway, other: Receiver) -> None:
    """If Redis is away, or no gateway was listening, polling finds the row."""
    turn_id = posted(gateway, other.url)
    gateway.worker.finish(turn_id, live=False)
    other.await_count(1)


@pytest.mark.usefixtures("no_polls")
def test_live_event_is_enough(gateway: Gateway, other: Receiver) -> None:
    """A live event starts the delivery at once, long before the next poll."""
    turn_id = posted(gateway, other.url)
    other.answers.append(answer(500))
    gateway.worker.change(turn_id, status="requires_action")
    gateway.worker.event(turn_id, "turn.requires_action")
    other.await_count(1)
    gateway.worker.finish(turn_id)
    other.await_count(2)


@pytest.mark.usefixtures("no_polls")
def test_event_that_comes_while_another_is_told_follows_it(gateway: Gateway, other: Receiver) -> None:
    """It is delivered right after the one under way."""
    other.answers.append(other.hang)
    turn_id = posted(gateway, other.url)
    gateway.worker.change(turn_id, status="requires_action")
    gateway.worker.event(turn_id, "turn.requires_action")
    other.await_count(1)
    gateway.worker.finish(turn_id)
    other.released.set()
    parked, ended = other.await_count(2)
    assert [parked.id, ended.id] == [f"{turn_id}_2", f"{turn_id}_3"]


def test_database_that_refuses_for_a_while_loses_no_event(
    gateway: Gateway, other: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so once, and the events are delivered later."""
    turn_id = posted(gateway, other.url)
    with gateway.worker.engine.begin() as connection:
        connection.execute(text("alter table webhooks rename to away"))
    gateway.worker.finish(turn_id)
    wait_until(lambda: _said(caplog, "webhooks wait"), "the log to say so")
    with gateway.worker.engine.begin() as connection:
        connection.execute(text("alter table away rename to webhooks"))
    await_state(gateway, turn_id, "delivered")
    assert len(_said(caplog, "webhooks wait")) == 1


def _said(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if words in record.getMessage()]


def test_several_gateways_tell_each_turn_once(gateway: Gateway, other: Receiver) -> None:
    """The gateway that claims a delivery first has it under a lease."""
    with serving(gateway.settings), serving(gateway.settings):
        turn_ids = [posted(gateway, other.url) for _ in range(30)]
        for turn_id in turn_ids:
            gateway.worker.finish(turn_id)
        for turn_id in turn_ids:
            await_state(gateway, turn_id, "delivered")
    assert sorted(told.id for told in other.received) == sorted(f"{turn_id}_2" for turn_id in turn_ids)


@pytest.mark.one_database("postgres")
@pytest.mark.gateway(webhook_secret=None)
@pytest.mark.parametrize(("sig", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 0)])
def test_gateway_that_ends_before_it_wrote_that_it_told_is_followed_by_another(
    gateway: Gateway, other: Receiver, told_by_a_process: Delivering, sig: signal.Signals, code: int
) -> None:
    """After the lease another gateway delivers it again; the receiver recognises it by its id."""
    turn_id = told_by_a_process.turn_id
    told_by_a_process.process.send_signal(sig)
    assert told_by_a_process.process.wait(30) == code
    assert "Traceback" not in told_by_a_process.log.read_text()
    now = state(gateway, turn_id)
    assert (now["status"], now["attempts"], now["last_attempt_at"]) == ("trying", 1, None)
    with serving(gateway.settings.model_copy(update={"webhook_secret": SecretStr(SECRET)})):
        pass_time(gateway, turn_id)
        first, second = other.await_count(2)
        assert first.id == second.id
        assert await_state(gateway, turn_id, "delivered")["attempts"] == 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivering:
    """A gateway process that is delivering to a receiver that hangs, beside a gateway that delivers nothing."""

    process: subprocess.Popen[bytes]
    log: Path
    turn_id: str


@pytest.fixture
def told_by_a_process(gateway: Gateway, gateway_redis: str, other: Receiver, tmp_path: Path) -> Generator[Delivering]:
    """The same for a gateway that runs in a process of its own, as on another machine."""
    other.answers.append(other.hang)
    place = (gateway.settings.database_url, gateway_redis, log := tmp_path / "log")
    with gateway_process(*place, HARNESS_WEBHOOK_SECRET=SECRET, HARNESS_WEBHOOK_PRIVATE="1") as running:
        body = {**gateway.defaults, "webhook": other.url}
        turn_id = httpx2.post(f"{running.url}/v1/turns", json=body, trust_env=False, timeout=30).json()["id"]
        gateway.worker.finish(turn_id)
        other.await_count(1)
        yield Delivering(process=running.process, log=log, turn_id=turn_id)


def test_receiver_that_hangs_holds_up_no_other(gateway: Gateway, other: Receiver) -> None:
    """Only a few requests go to one host at a time, however many turns wait for it."""
    other.answers.extend([other.hang] * 64)
    stuck = [posted(gateway, other.named_url) for _ in range(IN_FLIGHT_A_HOST + 4)]
    for turn_id in stuck:
        gateway.worker.finish(turn_id)
    other.await_count(IN_FLIGHT_A_HOST)
    other.answers.clear()
    turn_id = posted(gateway, other.url)
    gateway.worker.finish(turn_id)
    await_state(gateway, turn_id, "delivered")
    assert len(other.received) == IN_FLIGHT_A_HOST + 1
    other.released.set()
    for turn_id in stuck[IN_FLIGHT_A_HOST:]:
        await_state(gateway, turn_id, "delivered")


def test_tenant_whose_receivers_hang_holds_up_no_other(
    gateway: Gateway, other: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a few requests go out for one tenant at a time, however many hosts it has."""
    look_up = socket.getaddrinfo

    def local(host: Any, *args: Any, **named: Any) -> Any:
        return look_up("127.0.0.1" if str(host).endswith(".example") else host, *args, **named)

    monkeypatch.setattr("api_gateway.webhooks.addresses.socket.getaddrinfo", local)
    other.answers.extend([other.hang] * 64)
    hosts = [other.url.replace("127.0.0.1", f"h{number}.example") for number in range(IN_FLIGHT_A_TENANT + 4)]
    stuck = [posted(gateway, url) for url in hosts]
    for turn_id in stuck:
        gateway.worker.finish(turn_id)
    other.await_count(IN_FLIGHT_A_TENANT)
    other.answers.clear()
    with keys_on(gateway.settings.database_url) as keys:
        acme = bearer(new_key(keys, "acme")[0])
    body = {**gateway.defaults, "webhook": other.url}
    gateway.worker.finish(gateway.http.post("/v1/turns", json=body, headers=acme).json()["id"])
    assert other.await_count(IN_FLIGHT_A_TENANT + 1)[-1].verified(tenant="acme")
    other.released.set()
    for turn_id in stuck[IN_FLIGHT_A_TENANT:]:
        await_state(gateway, turn_id, "delivered")


def test_long_texts_are_cut(gateway: Gateway, other: Receiver) -> None:
    """A receiver that wants the whole text reads the turn."""
    turn_id = posted(gateway, other.url, input="ü" * 10_001)
    gateway.worker.finish(turn_id)
    document = other.await_count(1)[0].verified()
    assert (document["truncated"], document["data"]["input"]) == (True, "ü" * 10_000)
    assert len(gateway.turn(turn_id)["input"]) == 10_001


def test_tenant_with_a_key_is_told_with_its_own_secret(gateway: Gateway, other: Receiver) -> None:
    """That secret verifies no other tenant's webhooks, and no other tenant can read the deliveries."""
    with keys_on(gateway.settings.database_url) as keys:
        acme, stranger = (bearer(new_key(keys, tenant)[0]) for tenant in ("acme", "stranger"))
    body = {**gateway.defaults, "webhook": other.url}
    turn_id = gateway.http.post("/v1/turns", json=body, headers=acme).json()["id"]
    gateway.worker.finish(turn_id)
    (told,) = other.await_count(1)
    assert told.verified(tenant="acme")["data"]["id"] == turn_id
    with pytest.raises(WebhookVerificationError):
        told.verified()
    path = f"/v1/turns/{turn_id}/webhook"
    assert gateway.http.get(path, headers=acme).json()["url"] == other.url
    theirs = problem_of(gateway.http.get(path, headers=stranger), 404, "not_found")
    assert theirs["detail"] == f"there is no turn {turn_id!r}"


@pytest.mark.gateway(webhook_secret=f"{SECRET} {OLD_SECRET}")
def test_old_secret_is_good_while_two_are_set(gateway: Gateway, other: Receiver) -> None:
    """Webhooks are signed with both secrets, so that receivers can change theirs at any time."""
    gateway.worker.finish(posted(gateway, other.url))
    (told,) = other.await_count(1)
    assert told.verified() == told.verified(secret=OLD_SECRET)


def test_webhook_is_stored_with_its_turn_or_not_at_all(gateway: Gateway) -> None:
    """A refused turn leaves no webhook, and a repeat with the same key makes no second one."""
    problem_of(gateway.post(webhook="http://127.0.0.1:1/x", agent="nobody"), 404, "unknown_agent")
    first = gateway.post(webhook="http://127.0.0.1:1/x", key="k")
    assert gateway.post(webhook="http://127.0.0.1:1/x", key="k").json()["id"] == first.json()["id"]
    problem_of(gateway.post(key="k"), 422, "idempotency_mismatch")
    with gateway.worker.engine.connect() as connection:
        assert connection.execute(select(webhooks.c.turn_id)).scalars().all() == [first.json()["id"]]


@pytest.mark.gateway(webhook_secret=None)
def test_gateway_without_a_secret_takes_no_webhook(gateway: Gateway) -> None:
    """The answer says which setting the operator has to set."""
    problem = problem_of(gateway.post(webhook="https://example.com/told"), 422, "invalid_request")
    assert problem["errors"][0]["loc"] == ["body", "webhook"]
    assert "HARNESS_WEBHOOK_SECRET" in problem["detail"]


@pytest.mark.gateway(webhook_private=False)
def test_private_address_is_refused_at_once_or_not_called(gateway: Gateway, other: Receiver) -> None:
    """A numeric address is refused with the request; a name is checked when it is called."""
    for url in (other.url, "http://169.254.169.254/latest", "http://0x7f.1/", "http://[::ffff:10.0.0.1]/"):
        problem = problem_of(gateway.post(webhook=url), 422, "invalid_request")
        assert "is not a public one" in problem["errors"][0]["msg"]
    turn_id = posted(gateway, "http://example.com/told")
    with gateway.worker.engine.begin() as connection:  # a name whose owner points it here by now
        connection.execute(update(webhooks).values(url=other.named_url, host="localhost"))
    gateway.worker.finish(turn_id)
    now = await_state(gateway, turn_id, "trying")
    assert (now["status_code"], now["error"]) == (None, "the host's address is not a public one")
    assert other.received == []


def test_turn_without_webhook_has_none_to_read(gateway: Gateway) -> None:
    """The answer is 404, with other words than for a turn that does not exist."""
    turn_id = gateway.posted()["id"]
    assert "has no webhook" in problem_of(gateway.http.get(f"/v1/turns/{turn_id}/webhook"), 404, "not_found")["detail"]
    problem = problem_of(gateway.http.get("/v1/turns/nothing/webhook"), 404, "not_found")
    assert problem["detail"] == "there is no turn 'nothing'"


def test_openapi_tells_what_receivers_are_sent(gateway: Gateway, other: Receiver) -> None:
    """The document lists each event, and the schema of the body."""
    document = gateway.http.get("/openapi.json").json()
    assert set(document["webhooks"]) == RESTING_EVENTS
    gateway.worker.finish(posted(gateway, other.url))
    body = document["webhooks"]["turn.completed"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    schema = {**body, "components": document["components"]}
    assert jsonschema_rs.is_valid(schema, other.await_count(1)[0].verified())
    assert not jsonschema_rs.is_valid(schema, {})


def test_metrics_count_attempts(gateway: Gateway, other: Receiver) -> None:
    """Attempts are counted by their outcome."""
    other.answers.extend([answer(500), answer(410)])
    turn_ids = [posted(gateway, other.url) for _ in range(3)]
    for turn_id in turn_ids:
        gateway.worker.finish(turn_id)
        wait_until(lambda turn_id=turn_id: state(gateway, turn_id)["last_attempt_at"], "an attempt")
    for outcome in ("failed", "given_up", "delivered"):
        counted = f'harness_webhook_deliveries_total{{outcome="{outcome}"}} 1.0'
        wait_until(lambda counted=counted: counted in gateway.http.get("/metrics").text, counted)
