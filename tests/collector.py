"""Who takes traces: OpenTelemetry's protocol over HTTP, as far as a sender sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from typing import Any, cast

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from harness_worker.testing.waiting import wait_until


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A span as it came."""

    name: str
    kind: int
    trace_id: int
    span_id: int
    parent_id: int | None
    start_ns: int
    end_ns: int
    is_error: bool
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]
    scope: str
    events: tuple[str, ...]


def no_bytes() -> None:
    """What a collector writes that answers as it should."""


@dataclass(slots=True)
class Collector:
    """A collector on this machine.

    Attributes:
        url: What ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set to.
        status: What it answers.
        is_hanging: Whether it answers nothing until the end.
        writes: What it answers instead, byte by byte; ``None``: what is to be answered.
        left: Set once whoever asked left in the midst of that.
        posts: How often it was asked.
        bodies: What it took.
        paths: Where that was posted to.
        headers: With which headers.
    """

    url: str
    status: int = 200
    is_hanging: bool = False
    writes: Callable[[], Iterable[bytes] | None] = no_bytes
    left: threading.Event = field(default_factory=threading.Event)
    posts: int = 0
    bodies: list[bytes] = field(default_factory=list[bytes])
    paths: list[str] = field(default_factory=list[str])
    headers: list[Mapping[str, str]] = field(default_factory=list[Mapping[str, str]])
    over: threading.Event = field(default_factory=threading.Event)

    def write(self, to: BufferedIOBase, parts: Iterable[bytes]) -> None:
        """Answer with these, until nobody listens."""
        try:
            to.writelines(parts)
        except OSError:
            self.left.set()

    def spans(self, turn_id: str) -> list[Taken]:
        """Every span that came of a turn."""
        return [span for span in self.all_spans() if span.attributes.get("harness.turn_id") == turn_id]

    def all_spans(self) -> list[Taken]:
        """Every span that came."""
        return [span for body in tuple(self.bodies) for span in _spans(body)]

    def trace(self, turn_id: str) -> list[Taken]:
        """The turn's trace, as soon as it comes."""
        return wait_until(lambda: self.spans(turn_id), f"the trace of turn {turn_id}")


@contextmanager
def collecting() -> Generator[Collector]:
    """A collector that takes everything, until it is told otherwise."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.posts += 1
            if collector.is_hanging:
                collector.over.wait(60)
                return
            parts = collector.writes()
            if parts is not None:
                collector.write(self.wfile, parts)
                return
            if collector.status == 200:
                collector.paths.append(self.path)
                collector.headers.append(dict(self.headers))
                collector.bodies.append(body)
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        collector = Collector(url=f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield collector
        finally:
            collector.over.set()
            server.shutdown()


def _spans(body: bytes) -> Generator[Taken]:
    for group in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = _attributes(group.resource.attributes)
        for scoped in group.scope_spans:
            for span in scoped.spans:
                yield _taken(span, resource, scoped.scope.name)


def _taken(span: Span, resource: Mapping[str, Any], scope: str) -> Taken:
    return Taken(
        name=span.name,
        kind=span.kind,
        trace_id=int.from_bytes(span.trace_id, "big"),
        span_id=int.from_bytes(span.span_id, "big"),
        parent_id=int.from_bytes(span.parent_span_id, "big") or None,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        is_error=span.status.code == Status.STATUS_CODE_ERROR,
        attributes=_attributes(span.attributes),
        resource=resource,
        scope=scope,
        events=tuple(event.name for event in span.events),
    )


def _attributes(pairs: Any) -> dict[str, Any]:  # noqa: ANN401 - protobuf's own list
    return {pair.key: _value(pair) for pair in cast("list[KeyValue]", pairs)}


def _value(pair: KeyValue) -> Any:  # noqa: ANN401 - any attribute's value
    kind = pair.value.WhichOneof("value") or "string_value"
    value = getattr(pair.value, kind)
    return [each.string_value for each in value.values] if kind == "array_value" else value
