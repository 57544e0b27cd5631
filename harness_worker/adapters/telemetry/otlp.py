"""Sends traces by OpenTelemetry's protocol over HTTP. Its SDK reads further settings from ``OTEL_…`` itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from harness_worker.adapters.telemetry.posts import bounded_session
from harness_worker.core.tracing.trace import Attribute, Span, SpanEvent, Trace
from harness_worker.errors import TransientError
from harness_worker.urls import masked

SERVICE: Final = "agent-harness"
MOST_CHARS: Final = 300
"""How much is reported of the reason why traces were refused, in characters."""

_KINDS: Final = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_SCOPE: Final = InstrumentationScope("harness_worker")
_EXPORTER_LOG: Final = logging.getLogger(OTLPSpanExporter.__module__)


class OtlpTraces:
    """Implements ``ports.Traces``.

    Spans are created in their readable form, not through a tracer, which would choose ids and times of its own.

    Args:
        url: The URL that traces are posted to.
    """

    def __init__(self, url: str) -> None:
        named = {SERVICE_NAME: SERVICE, **OTELResourceDetector().detect().attributes}
        provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
        self._resource = provider.resource
        self._sampler = provider.sampler
        self._exporter = OTLPSpanExporter(endpoint=url, session=bounded_session())

    def send(self, traces: Sequence[Trace]) -> None:
        """Send the traces that the sampler selects."""
        spans = [span for trace in traces if self._is_sampled(trace[0]) for span in self._readable(trace)]
        if not spans:
            return
        with _Listening() as heard:
            result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            raise TransientError(f"the collector of traces did not take them: {heard.said}")

    def close(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()

    def _is_sampled(self, first: Span) -> bool:
        answer = self._sampler.should_sample(
            _around(first), first.trace_id, first.name, _KINDS[first.kind], dict(first.attributes)
        )
        return answer.decision.is_sampled()

    def _readable(self, trace: Trace) -> Iterator[ReadableSpan]:
        for span in trace:
            yield ReadableSpan(
                name=span.name,
                context=_context(span.trace_id, span.span_id),
                parent=_parent(span),
                resource=self._resource,
                attributes=_attributes(span),
                events=[_event(event) for event in span.events],
                kind=_KINDS[span.kind],
                status=Status(StatusCode.UNSET if span.error is None else StatusCode.ERROR),
                start_time=span.start_ns,
                end_time=span.end_ns,
                instrumentation_scope=_SCOPE,
            )


def _parent(span: Span) -> SpanContext | None:
    if span.parent_id is None:
        return None
    return _context(span.trace_id, span.parent_id, is_remote=span.caller is not None)


def _context(trace_id: int, span_id: int, *, is_remote: bool = False) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=is_remote, trace_flags=_SAMPLED)


def _around(first: Span) -> Context | None:
    """The caller's span, for samplers that follow its decision."""
    caller = first.caller
    if caller is None:
        return None
    flags = TraceFlags(TraceFlags.SAMPLED if caller.is_sampled else TraceFlags.DEFAULT)
    named = SpanContext(caller.trace_id, caller.span_id, is_remote=True, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(named))


def _attributes(span: Span) -> dict[str, Attribute]:
    return {**span.attributes, **({} if span.error is None else {ERROR_TYPE: span.error})}


def _event(event: SpanEvent) -> Event:
    return Event(event.name, attributes=dict(event.attributes), timestamp=event.at_ns)


class _Listening(logging.Filter):
    """Within the context, catches what the exporter logs on this thread; other threads' messages still go to the log.

    Attributes:
        said: The first message caught, without secrets.
    """

    def __init__(self) -> None:
        super().__init__()
        self.said = "it does not say why"
        self._is_first = True
        self._thread = threading.get_ident()

    def __enter__(self) -> _Listening:
        _EXPORTER_LOG.addFilter(self)
        return self

    def __exit__(self, *_: object) -> None:
        _EXPORTER_LOG.removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record should be logged."""
        if record.thread != self._thread:
            return True
        if self._is_first:
            self.said, self._is_first = masked(record.getMessage())[:MOST_CHARS], False
        return False
