"""What the gate in memory knows about a turn and each of its calls. Times are in milliseconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from harness_worker.core.reads import ReadState, SettledRead
from harness_worker.ports import Admission, GatePass, ReadAttempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The current attempt of one call. ``beat_ms`` is ``None`` until it is admitted."""

    attempt: int
    tool_use_id: str
    deadline_ms: int
    ticket: str
    beat_ms: int | None = None
    is_lost: bool = False
    runner: str | None = None
    started_at: float | None = None
    finished_at: float | None = None
    completion: str | None = None
    closed: bool = False

    def is_stale(self, now_ms: int, ttl_ms: int) -> bool:
        """Whether its process is known or presumed to be dead."""
        return self.is_lost or (self.beat_ms is not None and now_ms - self.beat_ms > ttl_ms)

    @property
    def saw_its_end(self) -> bool:
        """Whether its process was still alive when its time was over; if it died earlier, the read may run again."""
        return self.beat_ms is not None and self.beat_ms >= self.deadline_ms

    def refusal(self, now_ms: int, ttl_ms: int) -> Admission | None:
        """Why it may not start; ``None`` if it may."""
        if self.closed:
            return Admission.CLOSED
        if self.completion is not None:
            return Admission.DONE
        if now_ms > self.deadline_ms:
            return Admission.CLOSED
        if self.beat_ms is not None:
            return Admission.LOST if self.is_stale(now_ms, ttl_ms) else Admission.DUPLICATE
        return None

    def admitted(self, runner: str, at: float, now_ms: int, cap_ms: int) -> Entry:
        """The entry as ``runner`` starts it; its own cap counts from now."""
        deadline_ms = min(self.deadline_ms, now_ms + cap_ms)
        return replace(self, runner=runner, started_at=at, beat_ms=now_ms, deadline_ms=deadline_ms)

    def state(self, now_ms: int, ttl_ms: int) -> ReadState | None:
        """Its state; ``None`` if it is completed."""
        if self.completion is not None:
            return None
        if now_ms > self.deadline_ms and (self.beat_ms is None or self.saw_its_end):
            return ReadState.EXPIRED
        if self.closed:
            return ReadState.CLOSED
        if self.beat_ms is None:
            return ReadState.UNADMITTED
        return ReadState.LOST if self.is_stale(now_ms, ttl_ms) else ReadState.LIVE

    def as_settled(self, call_id: str, state: ReadState | None, now_ms: int, ttl_ms: int) -> SettledRead:
        """The entry as ``settle`` reports it."""
        beat_ms = self.beat_ms if state is ReadState.LIVE else None
        return SettledRead(
            call_id=call_id,
            state=state,
            completion=self.completion,
            started_at=self.started_at,
            finished_at=self.finished_at,
            worker=self.runner,
            lease_s=None if beat_ms is None else (beat_ms + ttl_ms + 1 - now_ms) / 1000,
        )


@dataclass(slots=True, kw_only=True)
class TurnGate:
    """One turn's gate: the highest fence let in, whether it is open, and its calls.

    ``is_whole`` says that it has known every call: the turn's first visit created it, and every visit since has raised
    it. A fence that was skipped may have opened its calls in a gate that was lost in a flush.
    """

    fence: int
    is_whole: bool = False
    is_open: bool = True
    calls: dict[str, Entry] = field(default_factory=dict[str, Entry])

    def raised(self, fence: int) -> bool:
        """Let ``fence`` in unless a higher one was; a new fence reopens the gate."""
        self.is_open = self.is_open or fence > self.fence
        self.is_whole = self.is_whole and fence <= self.fence + 1
        self.fence = max(self.fence, fence)
        return self.leads(fence)

    def leads(self, fence: int) -> bool:
        """Whether this fence was the last one let in."""
        return self.fence == fence

    def closed(self, fence: int, *, is_over: bool) -> None:
        """Close it, unless a higher fence was let in; remember ``fence`` if it is above all that were."""
        if fence >= self.fence:
            self.is_whole = self.is_whole and fence == self.fence
            self.fence, self.is_open = fence, False
            if is_over:
                self.calls = {name: replace(call, ticket="", completion=None) for name, call in self.calls.items()}

    def entry(self, call_id: str, attempt: int) -> Entry | None:
        """The call's entry if that attempt is its current one."""
        known = self.calls.get(call_id)
        return known if known is not None and known.attempt == attempt else None

    def unknown(self, read: ReadAttempt) -> ReadState:
        """The state of an attempt without an entry: if it was never opened, it never started."""
        known = self.calls.get(read.call_id)
        is_another = known is not None and known.tool_use_id != read.tool_use_id
        never_opened = is_another or (known.attempt < read.attempt if known is not None else self.is_whole)
        return ReadState.UNADMITTED if never_opened else ReadState.GONE

    def register(self, one: GatePass, now_ms: int) -> None:
        """Add a new call or a higher attempt; a known attempt stays as it is, unless it is another call's."""
        known = self.calls.get(one.call_id)
        if known is not None and known.attempt >= one.attempt and known.tool_use_id == one.tool_use_id:
            return
        deadline_ms = now_ms + one.remaining_ms
        self.calls[one.call_id] = Entry(
            attempt=one.attempt, tool_use_id=one.tool_use_id, deadline_ms=deadline_ms, ticket=one.ticket
        )
