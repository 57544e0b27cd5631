"""Figures as Prometheus' metric families. No label contains a tenant, a turn or anything that a user said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.exposition import choose_encoder

from api_gateway.metrics.ended_turns import Key, Totals
from api_gateway.metrics.figures import COUNTED, Figures, OpenWork
from api_gateway.metrics.traffic import Traffic
from api_gateway.webhooks.rules import DeliveryOutcome

_PROCESS: Final = ProcessCollector(registry=None)


class _Families:
    """The collector that an encoder of ``prometheus_client`` expects."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def exposed(
    figures: Figures, traffic: Traffic, webhooks: Mapping[DeliveryOutcome, int], accept: str
) -> tuple[bytes, str]:
    """The body of ``/metrics`` and its content type, in the format ``accept`` asks for: Prometheus' or OpenMetrics."""
    try:
        encode, content_type = choose_encoder(accept)
    except TypeError:  # it fails on a version that is no number
        encode, content_type = choose_encoder("")
    families = [*_fleet(figures), *_ended(figures.ended), *_traffic(traffic), _webhooks(webhooks), *_PROCESS.collect()]
    return encode(_Families(families)), content_type


def _fleet(figures: Figures) -> Iterator[Metric]:
    answers = {"database": figures.open_work, "broker": figures.queues, "redis": figures.counters}
    up = {(name,): float(answer is not None) for name, answer in answers.items()}
    yield _gauge("harness_source_up", "Whether a source of the other metrics answered.", ("source",), up)
    work = figures.open_work or OpenWork(number={}, overdue={}, oldest_queued_s={})
    by = ("agent", "status")
    yield _gauge("harness_turns", "Turns that have not ended.", by, work.number)
    words = "Turns that a coordinator should have taken up over 10 s ago."
    yield _gauge("harness_turns_overdue", words, by, work.overdue)
    words = "Age of the oldest turn that has not started."
    yield _gauge("harness_turns_oldest_queued_seconds", words, ("priority",), work.oldest_queued_s)
    waiting = {(queue,): float(depth) for queue, depth in (figures.queues or {}).items()}
    yield _gauge("harness_queue_messages", "Messages that wait for a worker.", ("queue",), waiting)
    for name, number in (figures.counters or {}).items():
        yield _counter(f"harness_{name}", COUNTED[name], (), {(): float(number)})


def _ended(totals: Totals) -> Iterator[Metric]:
    by_turn = ("agent", "status", "stop_reason")
    yield _counter("harness_turns_ended", "Turns that have ended.", by_turn, totals.turns)
    number: dict[str, float] = {}
    for (agent, *_), turns in totals.turns.items():
        number[agent] = number.get(agent, 0.0) + turns
    yield _summary("harness_turn_seconds", "From a turn's creation to its end.", number, totals.seconds)
    yield _summary("harness_turn_queued_seconds", "From a turn's creation to its start.", number, totals.queued_s)
    yield _counter("harness_tool_calls", "Tool calls of ended turns.", ("tool", "outcome"), totals.calls)
    yield _counter("harness_model_tokens", "Tokens of ended turns.", ("agent", "kind"), totals.tokens)
    yield _counter("harness_model_dollars", "US dollars that ended turns cost.", ("agent",), totals.dollars)


def _traffic(traffic: Traffic) -> Iterator[Metric]:
    labels = ("method", "route", "status")
    yield _counter("harness_http_requests", "Requests that were answered.", labels, traffic.answered)
    yield _gauge(
        "harness_sse_readers",
        "Streams that are open: of events, and of answers to OpenAI's clients.",
        (),
        {(): float(traffic.readers)},
    )


def _webhooks(outcomes: Mapping[DeliveryOutcome, int]) -> Metric:
    numbers = {(each.value,): outcomes.get(each, 0) for each in DeliveryOutcome}
    return _counter("harness_webhook_deliveries", "Attempts to deliver a webhook.", ("outcome",), numbers)


def _counter(name: str, help_text: str, labels: tuple[str, ...], values: Mapping[Key, float]) -> Metric:
    return _filled(CounterMetricFamily(name, help_text, labels=labels), values)


def _gauge(name: str, help_text: str, labels: tuple[str, ...], values: Mapping[Key, float]) -> Metric:
    return _filled(GaugeMetricFamily(name, help_text, labels=labels), values)


def _filled(family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[Key, float]) -> Metric:
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _summary(name: str, help_text: str, number: Mapping[str, float], sums: Mapping[Key, float]) -> Metric:
    family = SummaryMetricFamily(name, help_text, labels=("agent",))
    for agent, count in number.items():
        family.add_metric((agent,), int(count), sums[agent,])
    return family
