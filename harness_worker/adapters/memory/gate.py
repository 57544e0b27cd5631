"""The gate in this process's memory, for turns driven without Redis. It passes the same contract suite as Redis."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock

from harness_worker.adapters.memory.gate_state import Entry, TurnGate
from harness_worker.core.reads import ReadState, SettledRead
from harness_worker.ports import Admission, Admitted, GatePass, ReadAttempt, RunningCall


class MemoryGate:
    """Implements ``ports.Gate``; safe to share between threads. Forgets nothing: use one per turn.

    Args:
        lease_ttl_s: A read without a heartbeat for longer counts as lost, in seconds.
        clock: Seconds since the epoch; the only clock.
    """

    def __init__(self, *, lease_ttl_s: float, clock: Callable[[], float] = time.time) -> None:
        self._ttl_ms = int(lease_ttl_s * 1000)
        self._clock = clock
        self._lock = Lock()
        self._turns: dict[str, TurnGate] = {}

    def raise_fence(self, turn_id: str, fence: int) -> bool:
        """See ``ports.Gate.raise_fence``."""
        with self._lock:
            gate = self._turns.setdefault(turn_id, TurnGate(fence=fence, is_whole=fence == 1))
            return gate.raised(fence)

    def open(self, turn_id: str, fence: int, passes: Sequence[GatePass]) -> bool:
        """See ``ports.Gate.open``."""
        with self._lock:
            gate = self._turns.get(turn_id)
            if gate is None or not gate.leads(fence) or not gate.is_open:
                return False
            for one in passes:
                gate.register(one, self._now_ms)
            return True

    def close(self, turn_id: str, fence: int, *, is_over: bool = False) -> None:
        """See ``ports.Gate.close``."""
        with self._lock:
            gate = self._turns.get(turn_id)
            if gate is not None:
                gate.closed(fence, is_over=is_over)

    def settle(self, turn_id: str, fence: int, reads: Sequence[ReadAttempt], *, close: bool) -> list[SettledRead]:
        """See ``ports.Gate.settle``."""
        with self._lock:
            gate = self._turns.get(turn_id)
            if gate is None or not gate.leads(fence):
                return [SettledRead(call_id=read.call_id, state=ReadState.GONE) for read in reads]
            return [self._settled(gate, read, close=close) for read in reads]

    def admit(self, run: RunningCall, cap_ms: int) -> Admitted:
        """See ``ports.Gate.admit``."""
        with self._lock:
            gate = self._turns.get(run.turn_id)
            entry = gate.entry(run.call_id, run.attempt) if gate and gate.is_open else None
            if gate is None or entry is None:
                return Admitted(answer=Admission.CLOSED)
            now_ms = self._now_ms
            refusal = entry.refusal(now_ms, self._ttl_ms)
            if refusal is not None:
                return Admitted(answer=refusal)
            entry = gate.calls[run.call_id] = entry.admitted(run.runner, self._clock(), now_ms, cap_ms)
            return Admitted(answer=Admission.OK, remaining_ms=max(0, entry.deadline_ms - now_ms), ticket=entry.ticket)

    def admits_write(self, run: RunningCall) -> bool:
        """See ``ports.Gate.admits_write``."""
        with self._lock:
            gate = self._turns.get(run.turn_id)
            if gate is None:
                return True
            known = gate.calls.get(run.call_id)
            return gate.is_open and (known is None or known.attempt <= run.attempt)

    def goes_on(self, run: RunningCall) -> bool:
        """See ``ports.Gate.goes_on``."""
        with self._lock:
            gate, entry = self._run(run)
            is_open = gate is not None and gate.is_open
            return is_open and entry is not None and not entry.closed and self._now_ms <= entry.deadline_ms

    def complete(self, run: RunningCall, completion: str) -> bool:
        """See ``ports.Gate.complete``; repeated, it gives ``True`` again for the same completion."""
        with self._lock:
            gate, entry = self._run(run)
            if gate is None or entry is None:
                return False
            if entry.completion is not None:
                return entry.completion == completion
            if not gate.is_open and entry.finished_at is not None:  # a repeat; the turn's end removed its completion
                return True
            if not gate.is_open or entry.closed or self._now_ms > entry.deadline_ms:
                return False
            gate.calls[run.call_id] = replace(entry, completion=completion, finished_at=self._clock())
            return True

    def beat(self, runs: Sequence[RunningCall]) -> None:
        """See ``ports.Gate.beat``."""
        with self._lock:
            for run in runs:
                gate, entry = self._run(run)
                if gate is not None and entry is not None and not entry.is_lost:
                    gate.calls[run.call_id] = replace(entry, beat_ms=self._now_ms)

    def lose(self, run: RunningCall) -> None:
        """See ``ports.Gate.lose``."""
        with self._lock:
            gate, entry = self._run(run)
            if gate is not None and entry is not None and not entry.saw_its_end:
                gate.calls[run.call_id] = replace(entry, is_lost=True)

    @property
    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _run(self, run: RunningCall) -> tuple[TurnGate | None, Entry | None]:
        gate = self._turns.get(run.turn_id)
        entry = gate.entry(run.call_id, run.attempt) if gate else None
        return gate, entry if entry and entry.runner == run.runner else None

    def _settled(self, gate: TurnGate, read: ReadAttempt, *, close: bool) -> SettledRead:
        call_id = read.call_id
        entry = gate.entry(call_id, read.attempt)
        if entry is None or entry.tool_use_id != read.tool_use_id:
            return SettledRead(call_id=call_id, state=gate.unknown(read))
        state = entry.state(self._now_ms, self._ttl_ms)
        if state is not None and (close or state in (ReadState.EXPIRED, ReadState.LOST)):
            gate.calls[call_id] = replace(entry, closed=True)
        return entry.as_settled(call_id, state, self._now_ms, self._ttl_ms)
