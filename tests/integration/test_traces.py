"""Turns as traces, from end to end: what a real collector receives over HTTP, from turns in a real database."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import SpanKind as Kind

from harness_worker import AgentHarness, Effect, Registry, Settings, ToolError
from harness_worker.adapters.embedded.ports import free_port
from harness_worker.adapters.telemetry.otlp import OtlpTraces
from harness_worker.core.tracing.trace import Caller, Span, Trace, call_span_id, chat_span_id, turn_span_id
from harness_worker.errors import ConfigError, TransientError
from harness_worker.testing.waiting import wait_until
from tests.collector import Collector, Taken, collecting, no_bytes

CLIENT, INTERNAL = (kind.value + 1 for kind in (Kind.CLIENT, Kind.INTERNAL))  # as the protocol counts them
WORDS = "their-own-words"
LINES: list[dict[str, Any]] = [
    {
        "content": [
            {"type": "text", "text": WORDS},
            {"type": "tool_use", "id": "a", "name": "look", "input": {"word": WORDS}},
            {"type": "tool_use", "id": "b", "name": "look", "input": {"word": "other"}},
            {"type": "tool_use", "id": "c", "name": "fail", "input": {}},
            {"type": "tool_use", "id": "d", "name": WORDS, "input": {}},
        ],
        "usage": {"input_tokens": 9, "output_tokens": 2},
    },
    {"content": [{"type": "text", "text": WORDS}]},
]


@pytest.fixture
def collector() -> Generator[Collector]:
    """A server that collects traces."""
    with collecting() as running:
        yield running


@contextmanager
def harness_on(home: Path, **settings: Any) -> Generator[AgentHarness]:  # noqa: ANN401 - any setting
    """One agent with two tools, one of which fails."""
    registry = Registry()

    @registry.tool(effect=Effect.READ_ONLY)
    def look(word: str) -> str:
        """Look a word up."""
        return f"{word} {WORDS}"

    @registry.tool(effect=Effect.LOCAL_WRITE)
    def fail() -> str:
        """Fail."""
        raise ToolError(WORDS)

    script = home / "script.jsonl"
    script.write_text("".join(json.dumps({"script": "s", "step": n, **line}) + "\n" for n, line in enumerate(LINES)))
    registry.agent("clerk", model=f"scripted:{script}", tools=[look, fail])
    harness = AgentHarness(registry, Settings(home=home, **settings))
    try:
        yield harness
    finally:
        harness.close()


def work(harness: AgentHarness) -> str:
    """Run a turn; returns its id."""
    result = harness.run_turn("session-1", WORDS, metadata={"script": "s", "words": WORDS})
    assert (result.status, result.output_text) == ("completed", WORDS)
    return result.id


def lost_by(harness: AgentHarness) -> int:
    """How many traces the harness has lost."""
    own: Any = harness
    return own._tracing.lost


def shape(spans: list[Taken]) -> list[tuple[str, int, bool]]:
    """The structure of a trace, without the model's name."""
    return [(span.name.partition(" scripted:")[0], span.kind, span.is_error) for span in spans]


SHAPE = [
    ("invoke_agent clerk", INTERNAL, False),
    ("chat", CLIENT, False),
    ("chat", CLIENT, False),
    ("execute_tool look", INTERNAL, False),
    ("execute_tool look", INTERNAL, False),
    ("execute_tool fail", INTERNAL, True),
    ("execute_tool _OTHER", INTERNAL, True),
]


def test_turn_arrives_as_a_tree_of_spans(
    collector: Collector, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It arrives once and complete, with ids that follow from the turn's, and without any text."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
    with harness_on(tmp_path, database_url=database_url, otlp_endpoint=f"{collector.url}/") as harness:
        turn_id = work(harness)
        spans = collector.trace(turn_id)
    assert shape(spans) == SHAPE
    turn, first, _, look, *_ = spans
    assert (turn.parent_id, {span.parent_id for span in spans[1:]}) == (None, {turn_span_id(turn_id)})
    assert (turn.span_id, first.span_id) == (turn_span_id(turn_id), chat_span_id(turn_id, 0))
    assert (look.span_id, look.attributes["harness.wave"]) == (call_span_id(turn_id, "0.0", 1), 0)
    assert all(turn.start_ns <= span.start_ns <= span.end_ns <= turn.end_ns for span in spans)
    assert abs(turn.end_ns / 1e9 - time.time()) < 60
    assert first.attributes["gen_ai.usage.input_tokens"] == 9
    assert first.attributes["gen_ai.response.finish_reasons"] == ["tool_use"]
    assert spans[5].attributes["error.type"] == "tool_error"
    assert {span.resource["service.name"] for span in spans} == {"agent-harness"}
    assert {span.scope for span in spans} == {"harness_worker"}
    assert turn.events == ("turn.started",)
    assert (collector.paths, collector.headers[0]["x-tenant"]) == (["/v1/traces"], "blue")
    assert WORDS.encode() not in b"".join(collector.bodies)


def test_texts_arrive_where_they_are_asked_for(collector: Collector, database_url: str, tmp_path: Path) -> None:
    """With the setting for it, texts have the attribute names of the conventions."""
    settings = {"otlp_traces_endpoint": f"{collector.url}/api/own", "trace_content": True}
    with harness_on(tmp_path, database_url=database_url, **settings) as harness:
        turn, first, _, look, *_ = collector.trace(work(harness))
    assert collector.paths == ["/api/own"]
    for span, name in [(turn, "input.messages"), (turn, "output.messages"), (first, "output.messages")]:
        assert WORDS in json.dumps(json.loads(span.attributes[f"gen_ai.{name}"]))
    assert json.loads(look.attributes["gen_ai.tool.call.arguments"]) == {"word": WORDS}
    assert look.attributes["gen_ai.tool.call.result"] == f"{WORDS} {WORDS}"


def test_what_opentelemetry_reads_from_the_environment_holds(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenTelemetry's variables set the service's name, the resource and the sampler."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "till")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    with harness_on(tmp_path) as harness:
        turn, *_ = collector.trace(work(harness))
    assert (turn.resource["service.name"], turn.resource["deployment.environment.name"]) == ("till", "test")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    before = collector.posts
    with harness_on(tmp_path) as harness:
        work(harness)
    assert collector.posts == before
    monkeypatch.delenv("OTEL_TRACES_SAMPLER")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with harness_on(tmp_path) as harness:
        work(harness)
    assert collector.posts == before


def an_end(caller: Caller | None) -> Trace:
    """The trace of a turn without a step."""
    root = Span(
        name="invoke_agent clerk",
        kind="internal",
        trace_id=caller.trace_id if caller else 5,
        span_id=7,
        parent_id=caller.span_id if caller else None,
        start_ns=1,
        end_ns=2,
        attributes={},
        caller=caller,
    )
    return (root,)


def test_caller_decides_whether_its_turns_are_kept(collector: Collector) -> None:
    """OpenTelemetry's default sampler keeps a turn only if its caller's trace is kept."""
    traces = OtlpTraces(f"{collector.url}/v1/traces")
    callers = [Caller(trace_id=n, span_id=n, is_sampled=n == 2) for n in (1, 2)]
    for caller in (*callers, None):
        traces.send([an_end(caller)])
    traces.close()
    assert collector.posts == 2
    assert [(span.trace_id, span.parent_id) for span in collector.all_spans()] == [(2, 2), (5, None)]


def endless(begin: bytes) -> Iterator[bytes]:
    """A response of 64 MB, which takes long to read."""
    yield begin
    yield from (b"x" * 65_536 for _ in range(1_000))


@pytest.mark.parametrize(
    ("status", "is_taken"), [(b"200 OK", True), (b"302 Found\r\nLocation: /", False), (b"500 Broken", False)]
)
def test_endless_answer_is_not_read(status: bytes, is_taken: bool, collector: Collector) -> None:
    """The status is enough, whatever it is."""
    collector.writes = lambda: endless(b"HTTP/1.0 " + status + b"\r\n\r\n")
    traces = OtlpTraces(f"{collector.url}/v1/traces")
    with nullcontext() if is_taken else pytest.raises(TransientError, match=status[:3].decode()):
        traces.send([an_end(None)])
    traces.close()
    assert collector.left.wait(30)
    assert collector.posts == 1


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\nX-Long: ", b"HTTP/1.1 200", b""])
def test_answer_that_drips_is_cut(begin: bytes, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, but the whole response does not."""

    def dripping() -> Iterator[bytes]:
        yield begin
        for _ in range(100):
            collector.over.wait(0.1)
            yield b"H"

    collector.writes = dripping
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")  # enough for the one that is answered at once
    traces = OtlpTraces(f"{collector.url}/v1/traces")
    with pytest.raises(TransientError, match="due to timeout"):
        traces.send([an_end(None)])
    assert collector.left.wait(30)
    collector.writes = no_bytes
    traces.send([an_end(None)])
    traces.close()
    assert len(collector.all_spans()) == 1


def test_collector_that_asks_for_patience_is_asked_again(collector: Collector) -> None:
    """The header with the time to wait is read, although the body is not."""
    answers = iter([[b"HTTP/1.0 429 Busy\r\nRetry-After: 0\r\nContent-Encoding: gzip\r\n\r\nnone"]])
    collector.writes = lambda: next(answers, None)
    traces = OtlpTraces(f"{collector.url}/v1/traces")
    traces.send([an_end(None)])
    traces.close()
    assert (collector.posts, len(collector.all_spans())) == (2, 1)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """All log lines about traces, whoever wrote them."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("trouble", ["away", "refuses", "unauthorized"])
def test_collector_that_takes_nothing_costs_a_line_in_the_log(
    trouble: str,
    collector: Collector,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Turns end as usual; once a minute the log says why traces are lost, without secrets."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")  # enough to be told why a first try failed
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hidden")
    collector.status = {"refuses": 500, "unauthorized": 401}.get(trouble, 200)
    place = f"127.0.0.1:{free_port()}" if trouble == "away" else collector.url.removeprefix("http://")
    with harness_on(tmp_path, otlp_endpoint=f"http://me:hidden@{place}") as harness:
        for _ in range(3):
            work(harness)
        wait_until(lambda: lost_by(harness) == 3, "all to be lost", 60)
    why = {"away": "refused", "refuses": "500", "unauthorized": "401"}[trouble]
    (line,) = (line for line in logged(caplog) if why in line)  # of a collector before this one there may be another
    assert line.startswith("traces of ")
    assert "hidden" not in caplog.text
    assert "Traceback" not in caplog.text


def test_collector_that_hangs_holds_no_turn_up(
    collector: Collector, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turns end while it hangs on the first trace; traces that wait at the end are reported as lost."""
    monkeypatch.setattr("harness_worker.bootstrap.inline.LAST_TRACES_S", 0.1)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
    collector.is_hanging = True
    with harness_on(tmp_path, otlp_endpoint=collector.url) as harness:
        work(harness)
        wait_until(lambda: collector.posts, "the collector to be asked")
        for _ in range(3):
            work(harness)
        assert collector.posts == 1
    assert logged(caplog) == ["traces of about 4 turns were not sent before this process ended"]
    collector.over.set()


def test_collector_that_comes_back_gets_what_ends_from_then_on(collector: Collector, tmp_path: Path) -> None:
    """Nothing has to be restarted."""
    collector.status = 401  # which is not asked again
    with harness_on(tmp_path, otlp_endpoint=collector.url) as harness:
        work(harness)
        wait_until(lambda: lost_by(harness) == 1, "the first to be lost")
        collector.status = 200
        assert shape(collector.trace(work(harness))) == SHAPE


def test_missing_extra_is_refused_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the setting and how to install the extra; no directory is left behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.delitem(sys.modules, "harness_worker.adapters.telemetry.otlp", raising=False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    told = r"^OTEL_EXPORTER_OTLP_ENDPOINT is set: .*; install the harness with its extra 'otel' \(.*\), or unset "
    with pytest.raises(ConfigError, match=told):
        AgentHarness(Registry())
    assert list(tmp_path.iterdir()) == []


def test_variable_that_opentelemetry_refuses_is_a_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names it, and the setting that made it matter."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "x")
    told = "^OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry refuses .*: OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be "
    with pytest.raises(ConfigError, match=told):
        AgentHarness(Registry())


def test_without_a_collector_nothing_is_loaded() -> None:
    """Neither the SDK is imported nor a thread started."""
    code = (
        "import sys, threading\n"
        "from harness_worker import AgentHarness, Registry\n"
        "registry = Registry(); registry.agent('a', model='scripted:x')\n"
        "harness = AgentHarness(registry)\n"
        "print('opentelemetry.sdk' in sys.modules, [t.name for t in threading.enumerate()])"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert ran.stdout.strip() == "False ['MainThread']"
