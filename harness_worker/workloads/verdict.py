"""Compares what a turn did with a plain replay of the same task."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness_worker.core.outcomes import ToolArtifactReference
from harness_worker.wire import JsonObject, TurnStatus
from harness_worker.workloads.base import (
    JournalRow,
    ObservedState,
    RecordedCall,
    RecordedEffect,
    ReplayOutcome,
    WorkloadTask,
)

SHOWN_CHARS = 160
ARTIFACT = re.compile(r"art_[0-9a-f]+: (?P<told>.{200})", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTurn:
    """A turn as the harness reports it, once it ended or waiting for it was given up.

    Args:
        id: The turn.
        status: Its status.
        stop_reason: Why it ended.
        error: The turn's error message, for people.
        calls: Its calls, shaped as in the HTTP API, by step and position.
        messages: Its history.
    """

    id: str
    status: str
    stop_reason: str | None
    error: str | None
    calls: tuple[JsonObject, ...]
    messages: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on one task; ``why`` is empty if everything equals the replay."""

    task: WorkloadTask
    turn: FinishedTurn
    journal: tuple[JournalRow, ...]
    missing: int
    extra: int
    out_of_order: int
    why: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether the turn did exactly what the replay did."""
        return not self.why

    @property
    def waves(self) -> int:
        """How many waves the turn's calls made."""
        return len({(call["step"], call["wave"]) for call in self.turn.calls})


def judge(task: WorkloadTask, turn: FinishedTurn, expected: ReplayOutcome, found: ObservedState) -> Verdict:
    """Compare a finished turn, and what it left in SQL, with the plain replay."""
    made = [row.effect for row in found.journal]
    missing = Counter(expected.effects) - Counter(made)
    extra = Counter(made) - Counter(expected.effects)
    moved = _out_of_order(expected.effects, made)
    why = [
        *_ending(turn),
        *_calls(task.calls, turn.calls, expected),
        *_results(turn),
        *(f"effect missing: {effect.tool} {effect.arguments} ({count}x)" for effect, count in missing.items()),
        *(f"effect extra: {effect.tool} {effect.arguments} ({count}x)" for effect, count in extra.items()),
        *([f"{moved} effects out of order"] if moved else []),
        *([] if found.final_state == expected.final_state else ["the final state differs from the replay's"]),
    ]
    return Verdict(
        task=task,
        turn=turn,
        journal=found.journal,
        missing=missing.total(),
        extra=extra.total(),
        out_of_order=moved,
        why=tuple(why),
    )


def _ending(turn: FinishedTurn) -> Iterator[str]:
    if turn.status != TurnStatus.COMPLETED:
        yield f"turn {turn.id} is {turn.status} ({turn.stop_reason}): {turn.error or 'no error given'}"


def _calls(recorded: Sequence[RecordedCall], calls: Sequence[JsonObject], expected: ReplayOutcome) -> Iterator[str]:
    if len(calls) != len(recorded):
        yield f"{len(calls)} calls instead of {len(recorded)}"
    for call, wanted, observation in zip(calls, recorded, expected.observations, strict=False):
        if RecordedEffect.of(call["tool"], call["arguments"]) != RecordedEffect.of(wanted.tool, wanted.arguments):
            yield f"call {call['call_id']} is {call['tool']} instead of {wanted.tool}, or has other arguments"
        elif call["is_error"] != observation.is_error or not _tells(call, observation.content):
            yield f"call {call['call_id']} {call['tool']}: {_differ(call['content'], observation.content)}"


def _tells(call: JsonObject, content: str) -> bool:
    """Whether this is what the model read as the call's result; for an artifact, only its beginning has to match."""
    if call.get("outcome") != ToolArtifactReference.__name__:
        return call["content"] == content
    summary = ARTIFACT.fullmatch(call["content"])
    return summary is not None and content.startswith(summary["told"])


def _differ(got: str, wanted: str) -> str:
    return f"the model read {got[:SHOWN_CHARS]!r} instead of {wanted[:SHOWN_CHARS]!r}"


def _results(turn: FinishedTurn) -> Iterator[str]:
    """Every call has exactly one result message, which says what the call's record says."""
    results = list(_blocks(turn, "tool_result"))
    asked = [block["id"] for block in _blocks(turn, "tool_use")]
    answered = [block["tool_use_id"] for block in results]
    if asked != answered:
        yield f"{len(answered)} results for {len(asked)} calls, or in another order"
    told = {block["tool_use_id"]: block["content"] for block in results}
    for call in turn.calls:
        if told.get(call["tool_use_id"], call["content"]) != call["content"]:
            yield f"call {call['call_id']}: its result message is not its content"


def _blocks(turn: FinishedTurn, kind: str) -> Iterator[JsonObject]:
    for message in turn.messages:
        if not isinstance(message["content"], str):
            yield from (block for block in message["content"] if block["type"] == kind)


def _out_of_order(expected: Sequence[RecordedEffect], made: Sequence[RecordedEffect]) -> int:
    """How many of the effects in both sequences are at different places, counting only the common ones."""
    both = Counter(expected) & Counter(made)
    return sum(a != b for a, b in zip(_only(both, expected), _only(both, made), strict=True))


def _only(wanted: Counter[RecordedEffect], effects: Sequence[RecordedEffect]) -> list[RecordedEffect]:
    left, kept = Counter(wanted), list[RecordedEffect]()
    for effect in effects:
        if left[effect] > 0:
            left[effect] -= 1
            kept.append(effect)
    return kept
