"""``/metrics`` as Prometheus reads it: it agrees with the journal, is cheap, and has no text of users."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics  # pyright: ignore[reportUnknownVariableType]
from prometheus_client.parser import text_string_to_metric_families

from api_gateway.config import Settings
from api_gateway.metrics import ended_turns
from api_gateway.metrics.queries import slice_end
from harness_worker import Hooks, Registry
from harness_worker.adapters.redis.client import RedisClient
from harness_worker.adapters.redis.counters import Tally, count
from harness_worker.adapters.sql.memories import SqlMemories
from harness_worker.bootstrap.engine import make_call_runner, make_coordinator
from harness_worker.bootstrap.fleet import make_fleet
from harness_worker.bootstrap.knowledge import make_knowledge
from harness_worker.config import load_settings
from harness_worker.core.registration.hooks import UsageReport
from harness_worker.testing.keys import keys_without_ttl
from harness_worker.testing.waiting import wait_until
from harness_worker.turn.hooking import tell_usage
from harness_worker.wire import COUNTERS, FINAL_STATUSES, LATE_RESULTS, TRACES_LOST, StopReason, turn_queue
from tests.integration.gateway_kit import NOWHERE, Gateway, serving

MANY = 3_000_000_000
"""More than 32 bits hold."""
USED = {"input_tokens": 100, "output_tokens": 20, "cache_read_tokens": 3, "cache_write_tokens": 4, "dollars": 0.25}
TOOL: dict[str, Any] = {"name": "get_order", "description": "", "effect": None, "schema": {}}
DONE = {"agent": "support", "status": "completed", "stop_reason": "end_turn"}
CANCELLED = {"agent": "other", "status": "cancelled", "stop_reason": "cancelled"}
ENDED_CALLS = [("get_order", "ToolTimeout"), ("invented by a model", "ToolDenied"), ("read_artifact", "ToolFailure")]
NO_PROMPT = SimpleNamespace(carried=SimpleNamespace(sources=None), messages=None)
Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


class Raising(Hooks):
    """Hooks with a mistake."""

    def on_usage(self, event: UsageReport) -> None:
        """Fail."""
        raise RuntimeError(event.turn_id)


def scraped(gateway: Gateway) -> Samples:
    """Every sample, by its name and labels."""
    answer = gateway.http.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(answer.text)
    samples = [sample for family in families for sample in family.samples]
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


def value(samples: Samples, name: str, **labels: str) -> float | None:
    """The value of one of our samples."""
    return samples.get((f"harness_{name}", frozenset(labels.items())))


def queues_of(samples: Samples) -> set[str]:
    """The queues whose messages are counted."""
    return {dict(labels)["queue"] for name, labels in samples if name == "harness_queue_messages"}


def finish(gateway: Gateway, turn_id: str, status: str, reason: str, **used: float) -> None:
    """End a turn now, with a creation three seconds ago and a start one second ago."""
    now = time.time()
    times = {"created_at": now - 3, "started_at": now - 1, "finished_at": now, "wake_at": None}
    gateway.worker.change(turn_id, status=status, stop_reason=reason, used={**USED, **used}, **times)


def test_metrics_tell_how_long_the_oldest_queued_turn_waits(gateway: Gateway) -> None:
    """There is a figure per priority; turns that have started, or wait for one before them, do not count."""

    def ages() -> dict[str, float | None]:
        now = scraped(gateway)
        return {each: value(now, "turns_oldest_queued_seconds", priority=each) for each in ("interactive", "batch")}

    assert ages() == {"interactive": 0, "batch": 0}
    started, oldest, newer = (gateway.posted(session_id=name)["id"] for name in "abc")
    overtaking, behind = (gateway.posted(session_id="a")["id"] for _ in range(2))
    for turn_id, age_s in ((started, 900), (overtaking, 850), (behind, 800), (oldest, 100), (newer, 50)):
        gateway.worker.change(turn_id, created_at=time.time() - age_s)
    finish(gateway, overtaking, "cancelled", "cancelled")
    gateway.worker.change(started, status="running")
    told = ages()
    assert told["interactive"] == pytest.approx(100, abs=20)
    assert told["batch"] == 0


def test_metrics_tell_what_ended_and_what_it_used(gateway: Gateway) -> None:
    """Turns, calls, tokens, dollars and times of ended turns are counted, each end once.

    The calls that a fork copied count for its origin alone.
    """
    scraped(gateway)
    gateway.worker.publish_agent(
        "other", tools=[{"name": "get_order", "description": "", "effect": None, "schema": {}}]
    )
    done, cancelled = gateway.posted()["id"], gateway.posted(agent="other")["id"]
    for position, (tool, kind) in enumerate(ENDED_CALLS):
        gateway.worker.call(done, 0, position, tool=tool, outcome={"kind": kind})
    gateway.worker.change(cancelled, forked_from=done, first_step=1)
    gateway.worker.call(cancelled, 0, 0, outcome={"kind": "ToolTimeout"})
    finish(gateway, done, "completed", "end_turn")
    finish(gateway, cancelled, "cancelled", "cancelled", dollars=0, input_tokens=MANY)

    def counted() -> Samples | None:
        told = scraped(gateway)
        ended = (value(told, "turns_ended_total", **by) for by in (DONE, CANCELLED))
        return told if all(ended) else None

    told = wait_until(counted, "both ends to be counted")
    again = scraped(gateway)
    for samples in (told, again):
        assert value(samples, "turns_ended_total", **CANCELLED) == 1
        for tool, kind in (("get_order", "ToolTimeout"), ("", "ToolDenied"), ("read_artifact", "ToolFailure")):
            assert value(samples, "tool_calls_total", tool=tool, outcome=kind) == 1
        assert value(samples, "model_tokens_total", agent="support", kind="cache_read") == 3
        assert value(samples, "model_tokens_total", agent="other", kind="input") == MANY
        assert value(samples, "model_dollars_total", agent="support") == 0.25
        assert value(samples, "turn_seconds_count", agent="support") == 1
        assert value(samples, "turn_seconds_sum", agent="support") == pytest.approx(3, abs=0.01)
        assert value(samples, "turn_queued_seconds_sum", agent="support") == pytest.approx(2, abs=0.01)
    text = gateway.http.get("/metrics").text
    assert "invented" not in text
    assert done not in text


def test_end_that_is_seen_after_later_ones_is_counted(gateway: Gateway) -> None:
    """A commit that waits for a lock or a standby becomes visible seconds after its own timestamp."""

    def ended() -> float:
        return value(scraped(gateway), "turns_ended_total", **DONE) or 0

    def counted(number: int) -> bool:
        return ended() == number

    assert counted(0)
    slow, quick, last = (gateway.posted()["id"] for _ in range(3))
    at = time.time()
    finish(gateway, quick, "completed", "end_turn")
    wait_until(lambda: counted(1), "the quick end to be counted")
    finish(gateway, slow, "completed", "end_turn")
    gateway.worker.change(slow, finished_at=at)
    wait_until(lambda: counted(2), "the slow end to be counted", 10)
    finish(gateway, last, "completed", "end_turn")
    wait_until(lambda: counted(3), "the last end to be counted")


def test_ends_are_counted_once_when_they_are_settled(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old ends are not read again, nor the calls of open turns, and no counter ever decreases."""
    monkeypatch.setattr(ended_turns, "SETTLED_S", 0.5)
    turn_ids = [gateway.posted()["id"] for _ in range(3)]
    for turn_id in turn_ids:
        gateway.worker.call(turn_id, 0, 0, tool="read_artifact", outcome={"kind": "ToolFailure"})
    told: list[tuple[float, float]] = []

    def is_told(number: int) -> bool:
        samples = scraped(gateway)
        calls = value(samples, "tool_calls_total", tool="read_artifact", outcome="ToolFailure") or 0
        assert calls == (value(samples, "turns_ended_total", **DONE) or 0)
        names = ("turns_ended_total", DONE), ("turn_seconds_sum", {"agent": "support"})
        told.append(cast("tuple[float, float]", tuple(value(samples, name, **by) for name, by in names)))
        return told[-1][0] == number

    assert is_told(0)
    for number, turn_id in enumerate(turn_ids, 1):
        finish(gateway, turn_id, "completed", "end_turn")
        wait_until(lambda number=number: is_told(number), "the end to be counted")
    settled_at = time.monotonic() + 1
    wait_until(lambda: is_told(3) and time.monotonic() > settled_at, "the ends to be settled, and counted as before")
    assert told == sorted(told)
    assert told[-1][1] == pytest.approx(9, abs=0.05)


@pytest.mark.one_database("sqlite")
def test_counter_never_falls(gateway: Gateway) -> None:
    """Prometheus takes any fall for a restart, and sums in another order may differ in the last digit."""

    def told_of(ends: int) -> Samples | None:
        told = scraped(gateway)
        return told if value(told, "turns_ended_total", **DONE) == ends else None

    assert told_of(0)
    first, second = (gateway.posted()["id"] for _ in range(2))
    finish(gateway, first, "completed", "end_turn", dollars=0.25)
    wait_until(lambda: told_of(1), "the first end to be counted")
    finish(gateway, second, "completed", "end_turn", dollars=0.0)
    gateway.worker.change(first, used={**USED, "dollars": 0.125})
    told = wait_until(lambda: told_of(2), "the second end to be counted")
    assert value(told, "model_dollars_total", agent="support") == 0.25


def test_ends_too_many_for_one_reading_are_added_up_by_several(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each scrape makes progress, even if the first ones run out of time because nobody scraped for long."""
    monkeypatch.setattr(ended_turns, "SETTLED_S", 0.0)
    monkeypatch.setattr(ended_turns, "SLICE", 1)
    begins: list[float] = []

    def cut_off(since: float, until: float, most: int) -> object:
        begins.append(since)
        if len(begins) == 2:
            raise TimeoutError
        return slice_end(since, until, most)

    for _ in range(3):
        finish(gateway, gateway.posted()["id"], "completed", "end_turn")
    monkeypatch.setattr(ended_turns, "slice_end", cut_off)
    assert not value(scraped(gateway), "turns_ended_total", **DONE)
    assert value(scraped(gateway), "turns_ended_total", **DONE) == 3
    assert begins[0] not in begins[1:]


def test_ends_of_an_agent_are_told_from_zero_on(gateway: Gateway) -> None:
    """A counter must first be seen at 0: Prometheus computes no rate from a first value of 1."""
    gateway.worker.publish_agent("fresh")
    told = scraped(gateway)
    ends = {
        (labels["status"], labels["stop_reason"])
        for name, by in told
        if name == "harness_turns_ended_total" and (labels := dict(by))["agent"] == "fresh"
    }
    assert {reason for _, reason in ends} == set(StopReason)
    assert {status for status, _ in ends} == FINAL_STATUSES
    assert len(ends) == len(StopReason)
    assert value(told, "turns_ended_total", agent="fresh", status="failed", stop_reason="model_error") == 0
    assert value(told, "model_tokens_total", agent="fresh", kind="output") == 0
    for name in ("model_dollars_total", "turn_seconds_count", "turn_queued_seconds_sum"):
        assert value(told, name, agent="fresh") == 0
    assert value(told, "webhook_deliveries_total", outcome="given_up") == 0


def test_metrics_tell_what_waits(gateway: Gateway) -> None:
    """Shown are open turns by status, overdue turns, queued messages, and results that came too late."""
    before = scraped(gateway)
    waiting, stuck = gateway.posted()["id"], gateway.posted()["id"]
    gateway.worker.change(stuck, status="running", wake_at=time.time() - 60)
    gateway.worker.call(waiting, 0, 0, queue="gpu", status="pending")
    gateway.worker.call(waiting, 0, 1, queue="of a call that has ended", status="ended")
    over = gateway.posted()["id"]
    gateway.worker.call(over, 0, 0, queue="of a turn that has ended", status="pending")
    finish(gateway, over, "completed", "end_turn")
    gateway.worker.redis.rpush("gpu", "message")
    client = RedisClient(gateway.settings.redis_url or "")
    count(client, LATE_RESULTS)
    told = scraped(gateway)
    assert value(told, "turns", agent="support", status="queued") == 1
    assert value(told, "turns_overdue", agent="support", status="queued") == 0
    assert value(told, "turns_overdue", agent="support", status="running") == 1
    queue = turn_queue("interactive")
    depths = [value(samples, "queue_messages", queue=queue) or 0.0 for samples in (before, told)]
    assert depths[1] == depths[0] + 3
    assert value(told, "queue_messages", queue="gpu") == gateway.worker.redis.llen("gpu")
    assert {f"of a {what} that has ended" for what in ("call", "turn")}.isdisjoint(queues_of(told))
    assert (value(told, "late_results_total") or 0) == (value(before, "late_results_total") or 0) + 1
    assert keys_without_ttl(client, pattern=COUNTERS) == []
    client.disconnect()


def test_metrics_tell_what_failed_in_workers(gateway: Gateway, tmp_path: Path) -> None:
    """Failures of hooks and of steps at a turn's end are counted once, as soon as the process reports them."""
    before = scraped(gateway)
    urls = {"database_url": gateway.settings.database_url, "redis_url": gateway.settings.redis_url, "home": tmp_path}
    fleet = make_fleet(load_settings(**urls))
    registry, tally = Registry(), Tally(fleet.redis)
    registry.agent("support", model="scripted:x", hooks=[Raising()])
    coordinator = make_coordinator(
        fleet,
        knowledge=make_knowledge(fleet.settings, registry.agents),
        memories=SqlMemories(fleet.engine),
        models={},
        holding=lambda _: nullcontext(cast("Any", None)),
        count=tally.add,
    )
    loaded = fleet.store.load(gateway.posted()["id"])
    assert loaded is not None
    coordinator.finalizer.report(loaded.turn)
    assert coordinator.finalizer.citations(loaded.turn, "as [doc:a] says", cast("Any", NO_PROMPT)) == ()
    runner = make_call_runner(
        fleet,
        registry=registry,
        knowledge=make_knowledge(fleet.settings, registry.agents),
        soft_deadline=cast("Any", None),
        count=fleet.count,
    )
    aftermath = runner.writes.aftermath
    tell_usage(aftermath.hooks, [Raising()], loaded.turn)
    aftermath.on_late()
    tally.add(TRACES_LOST)
    for _ in range(2):
        tally.flush()
    told = scraped(gateway)
    fleet.close()
    more = {"hook_failures_total": 2, "finalizer_failures_total": 1, "late_results_total": 1, "traces_lost_total": 1}
    assert {name: (value(told, name) or 0) - (value(before, name) or 0) for name in more} == more


def test_metrics_tell_what_was_asked(gateway: Gateway) -> None:
    """Requests are counted by route and status, with placeholders for ids and for unknown paths."""
    turn_id = gateway.posted()["id"]
    gateway.http.get(f"/v1/turns/{turn_id}")
    gateway.http.head(f"/v1/turns/{turn_id}")
    gateway.http.get("/v1/turns/nope")
    gateway.http.get("/v1/models/nope")
    gateway.http.get("/wp-admin.php")
    gateway.http.request("BREW", "/v1/turns")
    with gateway.http.stream("GET", f"/v1/turns/{turn_id}/events", headers={"Accept": "text/event-stream"}):
        told = wait_until(lambda: _with_a_reader(gateway), "the reader to be counted")
    wait_until(lambda: value(scraped(gateway), "sse_readers") == 0, "the reader to be gone")
    route = "/v1/turns/{turn_id}"
    assert value(told, "http_requests_total", method="GET", route=route, status="200") == 2
    assert value(told, "http_requests_total", method="GET", route=route, status="404") == 1
    assert value(told, "http_requests_total", method="GET", route="/v1/models/{model}", status="404") == 1
    assert value(told, "http_requests_total", method="POST", route="/v1/turns", status="202") == 1
    assert value(told, "http_requests_total", method="GET", route="other", status="404") == 1
    assert value(told, "http_requests_total", method="other", route="/v1/turns", status="405") == 1
    assert not any(turn_id in str(key) for key in told)


def _with_a_reader(gateway: Gateway) -> Samples | None:
    told = scraped(gateway)
    return told if value(told, "sse_readers") == 1 else None


def test_metrics_speak_openmetrics_to_those_who_ask(gateway: Gateway) -> None:
    """The newer format is given by content negotiation."""
    answer = gateway.http.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert {"harness_turns", "harness_http_requests"} <= {family.name for family in openmetrics(answer.text)}


@pytest.mark.one_database("sqlite")
@pytest.mark.parametrize(
    "accept", ["text/plain;version=abc", "application/openmetrics-text;version=1.x", "a/b", ";", ""]
)
def test_metrics_are_told_in_prometheus_own_format_to_all_others(gateway: Gateway, accept: str) -> None:
    """This includes clients that ask for a version that is none."""
    answer = gateway.http.get("/metrics", headers={"Accept": accept})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")


def test_metrics_survive_whatever_is_away(tmp_path: Path) -> None:
    """Without database and broker there are still the process's own figures, and which of the two is away."""
    nothing = Settings(database_url=f"sqlite:////{tmp_path}/no/where.db", redis_url=NOWHERE, dev_keyless=True)
    with serving(nothing) as url:
        answer = httpx2.get(f"{url}/metrics", timeout=20)
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    up = {sample.labels["source"]: sample.value for sample in families["harness_source_up"].samples}
    assert up == {"database": 0, "broker": 0, "redis": 0}
    assert "harness_http_requests" in families
