"""Exports ended turns as traces, on a separate thread, so that no turn ever waits for the collector."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import Final

from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.tracing.journal import Journal
from harness_worker.core.tracing.spans import trace_of
from harness_worker.core.tracing.trace import Trace
from harness_worker.errors import TransientError
from harness_worker.ports import Clock, Traces, TurnStore

log = logging.getLogger(__name__)

MOST_WAITING: Final = 2_000
"""How many turns may wait for export, as ids. Traces of further turns are lost."""

BATCH: Final = 32
"""How many turns are exported at once, at most."""

QUIET_S: Final = 60.0
"""How long the log stays silent after a line about lost traces, in seconds."""


class Tracing:
    """Reads ended turns from the journal, and sends their traces.

    This is best effort: traces that wait when the process dies, or that the collector does not accept, are lost. The
    journal has everything.

    Args:
        store: The journal.
        traces: Sends traces to the collector.
        agents: The agents that this process serves, by name.
        clock: Times the silence between two lines in the log.
        on_lost: Called for each turn whose trace is lost.
        has_content: Whether traces contain texts.

    Attributes:
        lost: How many traces were lost. No lock guards it, which might stay locked after an error: if threads lose some
            at the same moment, they may count one.
    """

    def __init__(
        self,
        *,
        store: TurnStore,
        traces: Traces,
        agents: Mapping[str, AgentSpec],
        clock: Clock,
        on_lost: Callable[[], None],
        has_content: bool = False,
    ) -> None:
        self.lost = 0
        self._store = store
        self._traces = traces
        self._agents = agents
        self._clock = clock
        self._has_content = has_content
        self._on_lost = on_lost
        self._waiting: SimpleQueue[str | None] = SimpleQueue()
        self._under_way = 0
        self._quiet_until = clock.monotonic()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)

    def start(self) -> None:
        """Start to export."""
        self._thread.start()

    def tell(self, turn_id: str) -> None:
        """Have an ended turn exported. Never waits, never raises."""
        if self._waiting.qsize() < MOST_WAITING:
            self._waiting.put(turn_id)
        else:
            self._lose(1, "more turns end than can be exported")

    def finish(self, within_s: float) -> None:
        """Export the turns that wait, for at most ``within_s`` seconds, and then stop."""
        self._waiting.put(None)
        self._thread.join(within_s)
        if self._thread.is_alive():
            unsent = max(0, self._under_way + self._waiting.qsize() - 1)
            log.warning("traces of about %d turns were not sent before this process ended", unsent)

    def _run(self) -> None:
        while batch := self._next():
            self._under_way = len(batch)
            with suppress(Exception):  # memory may still be short
                self._send(batch)
            self._under_way = 0
        self._traces.close()

    def _next(self) -> list[str]:
        """The turns to export now, at least one; none once exporting has ended."""
        batch = [self._waiting.get()]
        while batch[-1] is not None and len(batch) < BATCH and not self._waiting.empty():
            batch.append(self._waiting.get())
        if batch[-1] is None and len(batch) > 1:
            self._waiting.put(None)  # exporting ends after this batch
        return [turn_id for turn_id in batch if turn_id is not None]

    def _send(self, batch: list[str]) -> None:
        traces = [trace for turn_id in batch if (trace := self._trace(turn_id))]
        try:
            if traces:
                self._traces.send(traces)
        except TransientError as why:
            self._lose(len(traces), str(why))
        except BaseException as error:  # noqa: BLE001 - the thread's boundary: later traces may be sent
            self._lose(len(traces), "they cannot be sent", error)

    def _trace(self, turn_id: str) -> Trace:
        """The turn's trace; empty if it cannot be made."""
        try:
            journal = self._journal(turn_id)
            return () if journal is None else trace_of(journal)
        except TransientError as why:
            self._lose(1, str(why))
        except BaseException as error:  # noqa: BLE001 - the thread's boundary: other turns can be exported
            self._lose(1, f"turn {turn_id} cannot be exported", error)
        return ()

    def _journal(self, turn_id: str) -> Journal | None:
        loaded = self._store.load(turn_id)
        if loaded is None:
            return None
        turn, calls = loaded
        return Journal(
            turn=turn,
            calls=calls,
            events=self._store.events_of(turn_id),
            agent=self._agents.get(turn.agent),
            messages=self._store.history(turn_id) if self._has_content else None,
        )

    def _lose(self, count: int, why: str, error: BaseException | None = None) -> None:
        for _ in range(count):
            self._on_lost()
        self.lost += count
        now = self._clock.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET_S
            log.warning("traces of %d turns are lost so far, the last because %s", self.lost, why, exc_info=error)
