"""Makes what exports traces of ended turns, if they are collected; its libraries are loaded only then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Final

from harness_worker.adapters.clock import SystemClock
from harness_worker.bootstrap.extras import installing
from harness_worker.config import Settings, variable_of
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.errors import ConfigError
from harness_worker.ports import Traces, TurnStore
from harness_worker.turn.tracing import Tracing
from harness_worker.urls import masked
from harness_worker.wire import TRACES_LOST

_OTLP: Final = "harness_worker.adapters.telemetry.otlp"


def make_traces(settings: Settings) -> Traces | None:
    """Makes what sends traces; ``None`` if nobody collects them.

    Raises:
        ConfigError: Traces are to be sent, but OpenTelemetry is not installed, or refuses one of its own variables.
    """
    url = settings.traces_url
    if url is None:
        return None
    given = variable_of("otlp_endpoint" if settings.otlp_traces_endpoint is None else "otlp_traces_endpoint")
    try:
        return import_module(_OTLP).OtlpTraces(url)
    except ValueError as wrong:
        reason = f"{given} is set, but OpenTelemetry refuses what is set beside it: {masked(str(wrong))}"
        raise ConfigError(f"{reason}; correct or unset that, or unset {given}") from None
    except ImportError as missing:
        raise ConfigError(f"{given} is set: {missing}; {installing('otel')}, or unset {given}") from None


def make_tracing(
    settings: Settings,
    traces: Traces | None,
    store: TurnStore,
    agents: Mapping[str, AgentSpec],
    count: Callable[[str], None],
) -> Tracing | None:
    """Makes what exports turns as traces, not started yet; ``None`` if nobody collects traces."""
    if traces is None:
        return None
    return Tracing(
        store=store,
        traces=traces,
        agents=agents,
        clock=SystemClock(),
        has_content=settings.trace_content,
        on_lost=partial(count, TRACES_LOST),
    )
