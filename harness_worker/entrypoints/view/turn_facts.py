"""Facts about a turn, its calls and its model calls, in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from harness_worker.entrypoints.view.figures import counted, duration, tokens_of, waves_of
from harness_worker.wire import JsonObject


def facts(turn: JsonObject) -> dict[str, str]:
    """The facts at the head of a turn's page, by label; empty ones are left out there."""
    usage, budget = turn["usage"], turn["budget"]
    used = (
        counted(usage["steps"], "step"),
        counted(usage["tool_calls"], "call"),
        counted(waves_of(turn), "wave"),
        f"${usage['dollars']:.4f}",
    )
    tokens = ", ".join(
        f"{usage[f'{name}_tokens']:,} {words}"
        for name, words in (
            ("input", "in"),
            ("output", "out"),
            ("cache_read", "from cache"),
            ("cache_write", "to cache"),
        )
    )
    limits = (
        counted(budget["max_steps"], "step"),
        counted(budget["max_tool_calls"], "call"),
        f"${budget['max_dollars']:.2f}",
        f"{budget['timeout_s']:g} s",
        counted(budget["max_tokens"], "token") if budget["max_tokens"] is not None else "",
    )
    return {
        "agent": turn["agent"],
        "session": turn["session_id"],
        "forked": _origin(turn),
        "asked by": _parent(turn),
        "metadata": ", ".join(f"{name}={value}" for name, value in turn["metadata"].items()),
        "created": _when(turn),
        "decision": turn.get("decision") or "",
        "used": ", ".join(used),
        "tokens": f"{tokens_of(usage):,}: {tokens}",
        "allowed": ", ".join(limit for limit in limits if limit),
    }


def _origin(turn: JsonObject) -> str:
    origin = turn.get("forked_from")
    return f"from step {origin['step']} of {origin['turn_id']}" if origin else ""


def _parent(turn: JsonObject) -> str:
    parent = turn.get("parent")
    return f"call {parent['call_id']} of {parent['turn_id']}" if parent else ""


def took_s(turn: JsonObject) -> float:
    """From a finished turn's creation to its end, in seconds."""
    return _apart(turn["created_at"], turn["finished_at"])


def _when(turn: JsonObject) -> str:
    created = datetime.fromisoformat(turn["created_at"])
    words = [created.strftime("%Y-%m-%d %H:%M:%S UTC")]
    if turn["started_at"]:
        words.append(f"began after {duration(_apart(turn['created_at'], turn['started_at']))}")
    if turn["finished_at"]:
        words.append(f"ended after {duration(_apart(turn['created_at'], turn['finished_at']))}")
    return ", ".join(words)


def _apart(earlier: str, later: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def span(calls: Sequence[JsonObject]) -> str:
    """The time from the first call's start to the last one's end; empty while one of them runs, or if none ran."""
    started = [call["started_at"] for call in calls if call["started_at"]]
    finished = [call["finished_at"] for call in calls if call["finished_at"]]
    if not started or len(finished) < len(started):
        return ""
    return duration(_apart(min(started), max(finished)))


def score_line(score: JsonObject) -> str:
    """A judge's score in one line."""
    if score["at"] is None:
        return f"{score['judge']}  due"
    if score["error"] is not None:
        return f"{score['judge']}  none: {score['error']}"
    return f"{score['judge']}  {score['score']:.2f}  {score['reason']}".rstrip()


def model_calls(events: Sequence[JsonObject]) -> dict[int, JsonObject]:
    """What the model said in each step, what that cost, and ``elapsed_s``."""
    began: dict[Any, str] = {}
    calls: dict[int, JsonObject] = {}
    for event in events:
        if event["type"] == "step.started":
            began[event["data"]["step"]] = event["at"]
        elif event["type"] == "model.completed":
            step = event["data"]["step"]
            calls[step] = {**event["data"], "elapsed_s": _apart(began.get(step) or event["at"], event["at"])}
    return calls


def changed_arguments(events: Sequence[JsonObject]) -> dict[str, JsonObject]:
    """What the model gave, for each call that a person had run with other arguments."""
    gave: dict[str, JsonObject] = {}
    changed: dict[str, JsonObject] = {}
    for event in events:
        data = event["data"]
        if event["type"] == "approval.requested":
            gave[data["call_id"]] = data["arguments"]
        elif event["type"] == "approval.resolved" and "arguments" in data and data["call_id"] in gave:
            changed[data["call_id"]] = gave[data["call_id"]]
    return changed


def model_cost(model: JsonObject | None) -> str:
    """The cost of a model call, in words."""
    if model is None:
        return ""
    usage: dict[str, float] = model["usage"]
    tokens = sum(amount for name, amount in usage.items() if name.endswith("_tokens"))
    dollars = f", ${usage['dollars']:.4f}" if usage.get("dollars") else ""
    return f"model: {counted(int(tokens), 'token')}{dollars}, {duration(model['elapsed_s'])}"
