"""Webhooks: which URLs and addresses are taken, what is signed, and what follows an answer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from api_gateway.requests.webhook_urls import host_of, is_closed_literal, is_public, webhook_url
from api_gateway.turns.answers import Budget, RequiredAction, SubagentAction, TurnSummary, Usage
from api_gateway.webhooks.backlog import MOST_A_TENANT, Backlog
from api_gateway.webhooks.payload import MOST_CHARS, TurnTold, webhook_body
from api_gateway.webhooks.rules import (
    BACKOFF_S,
    IN_FLIGHT,
    IN_FLIGHT_A_HOST,
    IN_FLIGHT_A_TENANT,
    JITTER,
    MOST_RETRY_AFTER_S,
    DeliveryOutcome,
    DueDelivery,
    Full,
    Lane,
    ReceiverAnswer,
    admitted,
    answer_of,
    full_of,
    verdict_of,
)
from api_gateway.webhooks.signing import Signer, message_id
from harness_worker.credentials import tenant_webhook_secret, webhook_secrets
from harness_worker.wire import TurnStatus

NEW = "n" * 24
OLD = "o" * 24

NOW = datetime(2026, 10, 21, 7, 26, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://example.com/told?token=1", "example.com"),
        ("http://EXAMPLE.com:8080", "example.com"),
        ("https://exämple.com/ü", "xn--exmple-cua.com"),
        ("http://[2606:4700::1111]:80/", "[2606:4700::1111]"),
        ("http://0x7f.1/", "127.0.0.1"),
    ],
)
def test_url_of_a_host_is_taken(url: str, host: str) -> None:
    """A valid URL is kept as given, and its host is told in one form, however the URL spells it."""
    assert webhook_url(url) == url
    assert host_of(url) == host


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "must be an http://"),
        ("example.com/told", "must be an http://"),
        ("ftp://example.com/", "must be an http://"),
        ("file:///etc/passwd", "must be an http://"),
        ("https://", "must be an http://"),
        ("https://example.com:99999/", "must be an http://"),
        ("https://example.com/a b", "must be an http://"),
        ("https://exam\nple.com/", "must be an http://"),
        (f"https://{'a.' * 130}com/", "must be an http://"),
        ("https://user@example.com/", "must not hold a user"),
        ("https://user:hidden@example.com/", "must not hold a user"),
        ("https://example.com/#part", "must not hold a fragment"),
    ],
)
def test_url_that_cannot_be_called_is_refused(url: str, said: str) -> None:
    """The message says what is wrong, and repeats no part of the URL that may be secret."""
    with pytest.raises(ValueError, match=said) as refused:
        webhook_url(url)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_address_is_open(address: str) -> None:
    """A public address may be called, also where an IPv6 address stands for a public IPv4 address."""
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "198.18.0.1", "240.0.0.1"),
        *("0.0.0.0", "255.255.255.255", "224.0.0.1", "169.254.169.254", "192.0.0.192", "168.63.129.16"),  # noqa: S104 - nobody listens there
        *("::", "::1", "fe80::1%eth0", "fd00:ec2::254", "ff0e::1", "2001:db8::1", "::10.0.0.1"),
        *("::ffff:10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::1", "2002:a00:1::1", "2001:0:1::"),
    ],
)
def test_other_address_is_closed(address: str) -> None:
    """Loopback, private, link-local, shared, reserved, multicast and metadata addresses may not be called."""
    assert not is_public(address)


@pytest.mark.parametrize(
    ("url", "closed"),
    [
        ("http://127.0.0.1/", True),
        ("http://2130706433/", True),
        ("http://[::1]/", True),
        ("http://localhost/", True),
        ("http://a.localhost/", True),
        ("http://8.8.8.8/", False),
        ("http://intern/", False),
    ],
)
def test_closed_literal_is_known_before_it_is_called(url: str, *, closed: bool) -> None:
    """Only literal addresses are judged; what a name stands for may change until it is called."""
    assert is_closed_literal(url) is closed


def test_signature_is_taken_by_the_library_for_receivers() -> None:
    """While two secrets are set, the library accepts either, and no other tenant's secret."""
    at = datetime.now(UTC).timestamp()
    headers = Signer([NEW, OLD]).headers("acme", message_id("turn", 7), at, '{"ö":1}'.encode())
    assert headers["webhook-id"] == "turn_7"
    for secret in (NEW, OLD):
        assert Webhook(tenant_webhook_secret(secret, "acme")).verify('{"ö":1}', headers) == {"ö": 1}
        for wrong in (tenant_webhook_secret(secret, "acme2"), tenant_webhook_secret("x" * 24, "acme")):
            with pytest.raises(WebhookVerificationError):
                Webhook(wrong).verify('{"ö":1}', headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(tenant_webhook_secret(NEW, "acme")).verify('{"ö":2}', headers)


@pytest.mark.parametrize("text", ["", "short", f"{NEW} short", f"{NEW} {OLD} {NEW}", "ö" * 24])
def test_weak_secrets_are_refused(text: str) -> None:
    """The message says what is needed, and repeats nothing of what was given."""
    with pytest.raises(ValueError, match="give one secret of at least 24 characters") as refused:
        webhook_secrets(text)
    assert "short" not in str(refused.value)


def test_secrets_are_one_or_two() -> None:
    """The newest secret stands first."""
    assert webhook_secrets(f" {NEW}\n") == (NEW,)
    assert webhook_secrets(f"{NEW} {OLD}") == (NEW, OLD)


@pytest.mark.parametrize("status", [200, 202, 204, 299])
def test_answer_of_the_two_hundreds_is_success(status: int) -> None:
    """The delivery is done, and no further attempt is made."""
    verdict = verdict_of(answer_of(status, "60", NOW), 0, "t")
    assert (verdict.outcome, verdict.retry_in_s, verdict.is_gone) == (DeliveryOutcome.DELIVERED, 0.0, False)


@pytest.mark.parametrize("status", [101, 199, 300, 302, 308, 400, 404, 429, 500, 503])
def test_other_answers_are_tried_again(status: int) -> None:
    """Redirects are failures too, since they are not followed."""
    verdict = verdict_of(answer_of(status, "", NOW), 0, "t")
    assert verdict.outcome is DeliveryOutcome.FAILED
    assert BACKOFF_S[0] <= verdict.retry_in_s <= BACKOFF_S[0] * (1 + JITTER)


def test_pauses_grow_and_end() -> None:
    """There are eight attempts within about eighteen hours."""
    none = ReceiverAnswer(error="no answer")
    verdicts = [verdict_of(none, failures, "t") for failures in range(8)]
    assert [verdict.outcome for verdict in verdicts] == [DeliveryOutcome.FAILED] * 7 + [DeliveryOutcome.GIVEN_UP]
    assert sum(BACKOFF_S) == pytest.approx(17.6 * 3_600, rel=0.01)


def test_receiver_that_is_gone_is_given_up_at_once() -> None:
    """A receiver that answers 410 says itself that it is gone."""
    verdict = verdict_of(answer_of(410, "", NOW), 0, "t")
    assert (verdict.outcome, verdict.is_gone) == (DeliveryOutcome.GIVEN_UP, True)


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """A machine whose clock shows another hour than UTC."""
    with monkeypatch.context() as there:
        there.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_east")
@pytest.mark.parametrize(
    ("status", "retry_after", "least_s"),
    [
        (503, "120", 120.0),
        (429, " 120 ", 120.0),
        (503, "1", BACKOFF_S[0]),
        (503, "99999999", MOST_RETRY_AFTER_S),
        (503, "9" * 30, MOST_RETRY_AFTER_S),
        (503, "0" * 30 + "120", 120.0),
        (503, "0" * 30, BACKOFF_S[0]),
        (503, "\u0661" * 3, BACKOFF_S[0]),
        (503, "-1", BACKOFF_S[0]),
        (503, "Wed, 21 Oct 2026 07:28:00 GMT", 120.0),
        (429, " Wednesday, 21-Oct-26 07:28:00 GMT ", 120.0),
        (503, "Wed Oct 21 07:28:00 2026", 120.0),
        (503, "Wed, 21 Oct 2026 07:25:00 GMT", BACKOFF_S[0]),
        (503, "Fri, 21 Oct 2050 07:28:00 GMT", MOST_RETRY_AFTER_S),
        (503, "Wed, 21 Oct 99999 07:28:00 GMT", BACKOFF_S[0]),
        (503, "Wed, 32 Oct 2026 25:61:00 GMT", BACKOFF_S[0]),
        (503, "Wed, 21 Oct 2026 07:28:00 +9999", BACKOFF_S[0]),
        (503, "soon" * 1_000, BACKOFF_S[0]),
        (500, "Wed, 21 Oct 2026 07:28:00 GMT", BACKOFF_S[0]),
        (500, "120", BACKOFF_S[0]),
    ],
)
def test_receiver_may_put_off_the_next_attempt(status: int, retry_after: str, least_s: float) -> None:
    """A busy receiver asks for a pause in seconds or by any form of HTTP date; the pause is kept within bounds."""
    retry_in_s = verdict_of(answer_of(status, retry_after, NOW), 0, "t").retry_in_s
    assert least_s <= retry_in_s <= least_s * (1 + JITTER)


LANES = st.builds(Lane, tenant=st.sampled_from("xyz"), host=st.sampled_from("abcdefghij"))


@given(st.lists(LANES, max_size=200), st.lists(LANES, max_size=80))
def test_no_host_no_tenant_and_no_process_is_overrun(lanes: list[Lane], earlier: list[Lane]) -> None:
    """Every limit is kept, and a delivery waits only if its host, its tenant or the process has no room."""
    busy = Counter(admitted(Counter(earlier), {}))
    chosen = Counter(admitted(Counter(lanes), busy))
    now = busy + chosen
    assert chosen <= Counter(lanes)
    assert now.total() <= IN_FLIGHT
    full = full_of(now)
    for lane in set(lanes):
        assert _under_way(now, host=lane.host) <= IN_FLIGHT_A_HOST
        assert _under_way(now, tenant=lane.tenant) <= IN_FLIGHT_A_TENANT
        is_full = lane.host in full.hosts or lane.tenant in full.tenants or now.total() == IN_FLIGHT
        assert is_full or chosen[lane] == lanes.count(lane)


def _under_way(busy: Counter[Lane], *, host: str | None = None, tenant: str | None = None) -> int:
    return sum(number for lane, number in busy.items() if host in {None, lane.host} and tenant in {None, lane.tenant})


def backlog_of(tenants: int) -> Backlog:
    """The deliveries of tenants whose every host hangs: more than they will ever be given room for."""
    backlog, hosts = Backlog(), 20 * tenants
    for number in range(hosts * IN_FLIGHT_A_HOST):
        lane = Lane(tenant=f"loud {number % tenants}", host=f"host {number % hosts}")
        backlog.add([DueDelivery(turn_id=f"{lane.tenant}/{lane.host}/{number}", lane=lane)])
    return backlog


def lane_of(turn_id: str) -> Lane:
    """The lane of a delivery that ``backlog_of`` made."""
    tenant, host, _ = turn_id.split("/")
    return Lane(tenant=tenant, host=host)


CALM = DueDelivery(turn_id="calm/calm/0", lane=Lane(tenant="calm", host="calm"))


@pytest.mark.parametrize("tenants", [1, 2, 3, 4, 5, 8, 20, IN_FLIGHT - 1])
def test_tenants_whose_receivers_all_hang_leave_room_for_another(tenants: int) -> None:
    """There is room however many hosts those tenants have and however old their backlogs are."""
    backlog = backlog_of(tenants)
    busy = Counter(map(lane_of, backlog.take({})))
    assert busy.total() >= min(tenants * IN_FLIGHT_A_TENANT, IN_FLIGHT // 2)
    assert backlog.take(busy) == []
    backlog.add([CALM])
    assert backlog.take(busy) == [CALM.turn_id]


@settings(max_examples=50)
@given(st.sampled_from([1, 2, 4, 8, 30, IN_FLIGHT - 1]), st.data())
def test_tenant_with_nothing_under_way_waits_for_one_attempt_at_most(tenants: int, data: st.DataObject) -> None:
    """Even if loud tenants, one after the other, fill all places, a freed place is given to another tenant."""
    backlog, busy = Backlog(), list[Lane]()
    for number in range(tenants):
        for each in range(IN_FLIGHT):
            lane = Lane(tenant=f"loud {number}", host=f"host {number} {each % 3}")
            backlog.add([DueDelivery(turn_id=f"{lane.tenant}/{lane.host}/{each}", lane=lane)])
        busy += map(lane_of, backlog.take(Counter(busy)))
    backlog.add([CALM])
    earlier, later = data.draw(st.permutations(busy)), list[Lane]()
    while earlier:
        ending = data.draw(st.integers(min_value=1, max_value=len(earlier)))
        earlier = earlier[ending:]
        started = backlog.take(Counter(earlier + later))
        if CALM.turn_id in started:
            return
        later += map(lane_of, started)
    pytest.fail("the calm tenant waits on")


def test_host_with_nothing_under_way_is_next_of_its_tenant() -> None:
    """Two hosts that hang take all places of their tenant, but neither gets a free place before a third host does."""
    backlog = Backlog()
    for number in range(100):
        backlog.add([DueDelivery(turn_id=f"t/{number % 2}/{number}", lane=Lane(tenant="t", host=str(number % 2)))])
    busy = Counter(map(lane_of, backlog.take({})))
    assert busy.total() == IN_FLIGHT_A_TENANT
    backlog.add([DueDelivery(turn_id="t/calm/0", lane=Lane(tenant="t", host="calm"))])
    assert backlog.take(busy) == []
    assert backlog.take(busy - Counter([Lane(tenant="t", host="0")])) == ["t/calm/0"]


def test_backlog_keeps_each_turn_once_in_order_and_so_many_of_a_tenant() -> None:
    """A delivery that the backlog does not keep is found again by a later look; what is taken makes room."""
    backlog = Backlog()
    lane = Lane(tenant="t", host="h")
    backlog.add(DueDelivery(turn_id=str(number), lane=lane) for number in [*range(9), *range(2 * MOST_A_TENANT)])
    backlog.add([CALM])
    taken: list[str] = []
    while found := backlog.take({}):
        taken += found
    assert taken == ["0", CALM.turn_id, *map(str, range(1, MOST_A_TENANT))]
    backlog.add([DueDelivery(turn_id="later", lane=lane)])
    assert backlog.take({}) == ["later"]


def test_full_are_those_without_room() -> None:
    """The look for what is due leaves out hosts and tenants without room."""
    busy = {Lane(tenant="x", host="a"): IN_FLIGHT_A_HOST - 1, Lane(tenant="x", host="b"): IN_FLIGHT_A_HOST}
    assert full_of(busy) == Full(hosts=["b"], tenants=[])
    assert full_of({**busy, Lane(tenant="y", host="a"): 1}) == Full(hosts=["a", "b"], tenants=[])
    assert full_of({**busy, Lane(tenant="x", host="c"): 1}) == Full(hosts=["b"], tenants=["x"])


def _turn(**values: object) -> TurnSummary:
    budget = Budget(max_steps=1, max_tool_calls=1, max_reflections=1, max_tokens=None, max_dollars=1.0, timeout_s=1.0)
    turn = TurnSummary(
        id="t", status=TurnStatus.COMPLETED, stop_reason=None, agent="a", session_id="s", input="", output_text="",
        citations=[], usage=Usage(), budget=budget, required_actions=[], error=None, decision=None, metadata={},
        created_at="", started_at=None, finished_at=None,
    )  # fmt: skip
    return turn.model_copy(update=values)


def test_long_texts_are_cut_and_said_to_be() -> None:
    """Each text is cut to so many characters, and the rest of the turn is whole."""
    turn = _turn(input="i" * MOST_CHARS, output_text="ö" * (MOST_CHARS + 1))
    document = TurnTold.model_validate_json(webhook_body("turn.completed", "at", turn))
    assert (document.type, document.timestamp, document.truncated) == ("turn.completed", "at", True)
    assert document.data == turn.model_copy(update={"output_text": "ö" * MOST_CHARS})


def test_long_arguments_are_left_out_and_said_to_be() -> None:
    """Arguments are told whole or not at all, since half of what a person is to approve would mislead them."""
    exactly = {"text": "ö" * (MOST_CHARS - len('{"text": ""}'))}
    own = RequiredAction(call_id="0.0", tool="save", arguments=exactly, expires_at="")
    below = SubagentAction(call_id="0.1", tool="save", arguments={}, expires_at="", turn_id="u")
    fits = _turn(required_actions=[own])
    assert TurnTold.model_validate_json(webhook_body("k", "at", fits)) == TurnTold(
        type="k", timestamp="at", truncated=False, data=fits
    )
    document = TurnTold.model_validate_json(
        webhook_body("k", "at", _turn(required_actions=[own], subagent_actions=[below]))
    )
    assert document.truncated
    assert document.data.required_actions == [own]
    assert document.data.subagent_actions == [below.model_copy(update={"arguments": None})]
