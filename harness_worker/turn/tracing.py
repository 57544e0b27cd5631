"""Exports finished turns as traces, in a thread of its own: no turn ever waits for whoever collects them."""

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
"""So many turns wait to be told; they are ids. What comes then is lost."""

BATCH: Final = 32
"""So many turns are told at once, at most."""

QUIET_S: Final = 60.0
"""How long the log is silent after a word on lost traces."""


class Tracing:
    """Reads turns that are over from the journal, and sends their traces.

    Best effort: what waits when the process dies is lost, and so is what is not taken. The journal has it all.

    Args:
        store: The journal.
        traces: Takes them.
        agents: What this process serves, by name.
        clock: Between two words in the log.
        has_content: Whether texts are told.
        on_lost: Told of each turn whose trace is lost.

    Attributes:
        lost: How many that were.
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
        self._lock = threading.Lock()
        self._under_way = 0
        self._quiet_until = clock.monotonic()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)

    def start(self) -> None:
        """Begin to tell."""
        self._thread.start()

    def tell(self, turn_id: str) -> None:
        """Have a turn told that is over. Never waits, never raises."""
        if self._waiting.qsize() < MOST_WAITING:
            self._waiting.put(turn_id)
        else:
            self._lose(1, "more turns end than can be told")

    def finish(self, within_s: float) -> None:
        """Tell of what waits, for so many seconds at most; then no more."""
        self._waiting.put(None)
        self._thread.join(within_s)
        if self._thread.is_alive():
            unsent = max(0, self._under_way + self._waiting.qsize() - 1)
            log.warning("traces of about %d turns were not sent before this process ended", unsent)

    def _run(self) -> None:
        while batch := self._next():
            self._under_way = len(batch)
            with suppress(Exception):  # memory that was short may be so still
                self._send(batch)
            self._under_way = 0
        self._traces.close()

    def _next(self) -> list[str]:
        """The turns to tell now, at least one; none once it is over."""
        batch = [self._waiting.get()]
        while batch[-1] is not None and len(batch) < BATCH and not self._waiting.empty():
            batch.append(self._waiting.get())
        if batch[-1] is None and len(batch) > 1:
            self._waiting.put(None)  # it is over after this batch
        return [turn_id for turn_id in batch if turn_id is not None]

    def _send(self, batch: list[str]) -> None:
        traces = [trace for turn_id in batch if (trace := self._trace(turn_id))]
        try:
            if traces:
                self._traces.send(traces)
        except TransientError as why:
            self._lose(len(traces), str(why))
        except Exception as error:  # noqa: BLE001 - the thread's boundary: the next ones may be told
            self._lose(len(traces), "they cannot be sent", error)

    def _trace(self, turn_id: str) -> Trace:
        """Empty if it cannot be told."""
        try:
            journal = self._journal(turn_id)
            return () if journal is None else trace_of(journal)
        except TransientError as why:
            self._lose(1, str(why))
        except Exception as error:  # noqa: BLE001 - the thread's boundary: other turns can be told
            self._lose(1, f"turn {turn_id} cannot be told", error)
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

    def _lose(self, count: int, why: str, error: Exception | None = None) -> None:
        for _ in range(count):
            self._on_lost()
        with self._lock:
            self.lost += count
            now = self._clock.monotonic()
            if now < self._quiet_until:
                return
            self._quiet_until = now + QUIET_S
        log.warning("traces of %d turns are lost so far, the last because %s", self.lost, why, exc_info=error)
