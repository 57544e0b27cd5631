"""A sweep's result as JSON, and as lines for files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from harness_worker.core.canonical import compact
from harness_worker.wire import JsonObject
from harness_worker.workloads.script import ideal_waves
from harness_worker.workloads.sweep import SweepResult


def summary(result: SweepResult) -> JsonObject:
    """The whole sweep in one object; ``expected`` counts all tasks, ``tasks`` those that ran."""
    verdicts = result.verdicts
    return {
        "workload": result.workload,
        "tasks": len(verdicts),
        "expected": result.expected,
        "passed": sum(verdict.passed for verdict in verdicts),
        "calls": sum(len(verdict.turn.calls) for verdict in verdicts),
        "waves": sum(verdict.waves for verdict in verdicts),
        "ideal_waves": ideal_waves([verdict.task for verdict in verdicts]),
        "effects": sum(len(verdict.journal) for verdict in verdicts),
        "effects_missing": sum(verdict.missing for verdict in verdicts),
        "effects_extra": sum(verdict.extra for verdict in verdicts),
        "effects_out_of_order": sum(verdict.out_of_order for verdict in verdicts),
        "attempts_repeated": sum(call["attempt"] > 1 for verdict in verdicts for call in verdict.turn.calls),
        "seconds": round(result.seconds, 3),
        "failures": [
            {"task": verdict.task.id, "turn": verdict.turn.id, "why": list(verdict.why)}
            for verdict in verdicts
            if not verdict.passed
        ],
    }


def effect_lines(result: SweepResult) -> Iterator[JsonObject]:
    """Every row of the effect journal, by task, in the journal's order."""
    for verdict in result.verdicts:
        for row in verdict.journal:
            yield {
                "task": verdict.task.id,
                "turn_id": row.turn_id,
                "seq": row.seq,
                "tool": row.effect.tool,
                "arguments": json.loads(row.effect.arguments),
                "call_id": row.call_id,
                "worker": row.worker,
                "attempt": row.attempt,
                "idempotency_key": row.idempotency_key,
                "observation": row.observation,
            }


def observation_lines(result: SweepResult) -> Iterator[JsonObject]:
    """Every call and the result that the model read, by task, in order."""
    for verdict in result.verdicts:
        for call in verdict.turn.calls:
            yield {"task": verdict.task.id, "turn_id": verdict.turn.id, **call}


def write_lines(path: Path, lines: Iterator[JsonObject]) -> None:
    """Write JSON lines."""
    path.write_text("".join(compact(line) + "\n" for line in lines), encoding="utf-8")
