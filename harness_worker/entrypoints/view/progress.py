"""Folds a turn's events into what a person wants to see: what the model said, and waves of calls side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeAlias

from harness_worker.entrypoints.plain import harmless, one_line
from harness_worker.wire import TERMINAL_EVENTS

Event: TypeAlias = Mapping[str, Any]
Place: TypeAlias = tuple[str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLine:
    """One model call.

    Args:
        step: The step, from 0.
        attempt: The attempt at the step that the text is from, from 1; 0 before anything was said.
        text: What the model said besides requesting tools; while it speaks, what it has said so far.
        is_answer: Whether it requested no more tools.
        elapsed_s: Wall time since the previous line, in seconds; ``None`` while the model is thinking or speaking.
    """

    step: int
    attempt: int = 0
    text: str = ""
    is_answer: bool = False
    elapsed_s: float | None = None

    @property
    def place(self) -> Place:
        """What tells this line from every other of its turn."""
        return ("model", self.step, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCell:
    """One call in its wave. ``outcome`` is the outcome's class name, ``None`` while the call runs."""

    call_id: str
    tool: str = ""
    outcome: str | None = None
    is_error: bool = False
    elapsed_ms: float = 0.0

    @property
    def name(self) -> str:
        """The tool's name, on one line; the call's id as long as the tool is unknown."""
        return one_line(self.tool) or self.call_id


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveLine:
    """Calls that run together; ``elapsed_s`` is wall time since the previous line, ``None`` while they run."""

    step: int
    wave: int
    calls: tuple[CallCell, ...]
    elapsed_s: float | None = None

    @property
    def place(self) -> Place:
        """What tells this line from every other of its turn."""
        return ("wave", self.step, self.wave)


Line: TypeAlias = ModelLine | WaveLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Everything seen of a turn so far. The lines' elapsed times add up to the turn's.

    Args:
        lines: The lines in order; open ones have no elapsed time.
        since: When the last line was closed, or the turn was queued, in seconds since the epoch.
        asked: The calls that wait for a person, by id.
        end: The terminal event's type, once seen.
    """

    lines: tuple[Line, ...] = ()
    since: float | None = None
    asked: frozenset[str] = frozenset()
    end: str | None = None


def fold(progress: Progress, event: Event) -> Progress:
    """The progress after one more event; unknown types change nothing. Texts are made plain, ready to be drawn."""
    event = harmless(event)
    at = datetime.fromisoformat(event["at"]).timestamp()
    if progress.since is None:  # the first event: the turn was queued
        progress = replace(progress, since=at)
    if event["type"] in TERMINAL_EVENTS:
        return replace(progress, end=event["type"])
    change = _CHANGES.get(event["type"])
    return progress if change is None else change(progress, event["data"], at)


def with_tools(progress: Progress, tools: Mapping[str, str]) -> Progress:
    """The progress with the names of running calls' tools, by call id, filled in."""
    return replace(progress, lines=tuple(_named(line, tools) for line in progress.lines))


def _start_model(progress: Progress, data: Event, _at: float) -> Progress:
    return replace(progress, lines=(*progress.lines, ModelLine(step=data["step"])))


def _speak(progress: Progress, data: Event, _at: float) -> Progress:
    return replace(progress, lines=tuple(_spoken(line, data) for line in progress.lines))


def _spoken(line: Line, data: Event) -> Line:
    """An open line with one more piece of text; a higher attempt starts it anew, a lower one is ignored as outdated."""
    if line.place != ("model", data["step"], 0) or line.elapsed_s is not None or isinstance(line, WaveLine):
        return line
    if data["attempt"] < line.attempt:
        return line
    before = line.text if data["attempt"] == line.attempt else ""
    return replace(line, attempt=data["attempt"], text=before + data["text"])


def _close_model(progress: Progress, data: Event, at: float) -> Progress:
    is_answer = data.get("stop_reason") != "tool_use"
    return _close(progress, ModelLine(step=data["step"], text=data.get("text") or "", is_answer=is_answer), at)


def _start_wave(progress: Progress, data: Event, _at: float) -> Progress:
    cells = tuple(CallCell(call_id=call_id) for call_id in data["calls"])
    return replace(progress, lines=(*progress.lines, WaveLine(step=data["step"], wave=data["wave"], calls=cells)))


def _end_call(progress: Progress, data: Event, _at: float) -> Progress:
    return replace(progress, lines=tuple(_with_outcome(line, data) for line in progress.lines))


def _close_wave(progress: Progress, data: Event, at: float) -> Progress:
    place = ("wave", data["step"], data["wave"])
    wave = next((line for line in progress.lines if line.place == place), None)
    return progress if wave is None else _close(progress, wave, at)


def _close(progress: Progress, closed: Line, at: float) -> Progress:
    closed = replace(closed, elapsed_s=at - (progress.since if progress.since is not None else at))
    others = tuple(line for line in progress.lines if line.place != closed.place)
    return replace(progress, lines=(*others, closed), since=at)


def _with_outcome(line: Line, data: Event) -> Line:
    if isinstance(line, ModelLine):
        return line
    ended = CallCell(**{name: data[name] for name in ("call_id", "tool", "outcome", "is_error", "elapsed_ms")})
    return replace(line, calls=tuple(ended if cell.call_id == ended.call_id else cell for cell in line.calls))


def _named(line: Line, tools: Mapping[str, str]) -> Line:
    if isinstance(line, ModelLine):
        return line
    cells = (replace(cell, tool=cell.tool or tools.get(cell.call_id, "")) for cell in line.calls)
    return replace(line, calls=tuple(cells))


def _ask(progress: Progress, data: Event, _at: float) -> Progress:
    return replace(progress, asked=frozenset(data["calls"]))


def _answer(progress: Progress, data: Event, _at: float) -> Progress:
    return replace(progress, asked=progress.asked - {data["call_id"]})


_CHANGES: Final[Mapping[str, Callable[[Progress, Event, float], Progress]]] = {
    "step.started": _start_model,
    "model.delta": _speak,
    "model.completed": _close_model,
    "wave.started": _start_wave,
    "tool.completed": _end_call,
    "wave.completed": _close_wave,
    "turn.requires_action": _ask,
    "approval.resolved": _answer,
}
