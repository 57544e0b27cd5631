"""The rules that hold for every turn that has ended, however it ended."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

ROOT = Path(__file__).parent.parent.parent
TERMINAL = ("turn.completed", "turn.incomplete", "turn.failed", "turn.cancelled")
OUTCOMES = ("ToolExecutionResult", "ToolTimeout", "ToolFailure", "ToolDenied", "ToolArtifactReference")
ERRORS = ("ToolTimeout", "ToolFailure", "ToolDenied")
READ_ONLY = "READ_ONLY"


def check_sound(turn: Json, events: list[Json], journal: list[Json]) -> None:
    """Assert every rule.

    Args:
        turn: The turn with its messages.
        events: All its events.
        journal: What its tools wrote down.
    """
    _check_text(turn, events)
    _check_calls(turn["calls"])
    _check_results(turn)
    _check_events(turn, events)
    _check_entries(turn["calls"], journal)


def _check_text(*documents: object) -> None:
    """Nothing that a client reads contains a traceback or a path of the harness."""
    text = json.dumps(documents)
    for secret in ("Traceback", 'File \\"', str(ROOT), sys.prefix, "site-packages"):
        assert secret not in text, text


def _check_calls(calls: list[Json]) -> None:
    """Calls are ordered, each has an outcome, and within a step the wave numbers never fall."""
    order = [(each["step"], each["position"]) for each in calls]
    assert order == sorted(set(order))
    waves = [(each["step"], each["wave"]) for each in calls]
    assert waves == sorted(waves)
    for each in calls:
        assert each["call_id"] == f"{each['step']}.{each['position']}"
        assert each["outcome"] in OUTCOMES, each
        assert each["is_error"] is (each["outcome"] in ERRORS), each
        assert each["attempt"] >= 1


def _check_results(turn: Json) -> None:
    """Each call has one result message with its content, in the model's order, before the next assistant message.

    A fork also has messages of calls that belong to its origin.
    """
    first = _first_step(turn)
    messages: list[Json] = turn["messages"]
    assert messages[0] == {"role": "user", "content": turn["input"]}
    asked = [_blocks(m, "tool_use") for m in messages if m["role"] == "assistant"]
    for step, blocks in enumerate(asked[first:], first):
        calls = [each for each in turn["calls"] if each["step"] == step]
        assert [b["id"] for b in blocks] == [c["tool_use_id"] for c in calls]
        if blocks:
            results = _blocks(messages[_index_of_step(messages, step) + 1], "tool_result")
            assert [r["tool_use_id"] for r in results] == [b["id"] for b in blocks]
            assert [r["content"] for r in results] == [c["content"] for c in calls]
            assert [r.get("is_error", False) for r in results] == [c["is_error"] for c in calls]
    own = messages[_index_of_step(messages, first) :] if len(asked) > first else []
    answered = sum(len(_blocks(m, "tool_result")) for m in own if m["role"] == "user")
    assert answered == len(turn["calls"])


def _first_step(turn: Json) -> int:
    """The first step that is the turn's own."""
    return (turn["forked_from"] or {"step": 0})["step"]


def _blocks(message: Json, kind: str) -> list[Json]:
    content = message["content"]
    return [] if isinstance(content, str) else [block for block in content if block["type"] == kind]


def _index_of_step(messages: list[Json], step: int) -> int:
    return [index for index, message in enumerate(messages) if message["role"] == "assistant"][step]


def _check_events(turn: Json, events: list[Json]) -> None:
    """Events have no gaps; each call completes once; the only terminal event is the last, and fits the turn."""
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[0]["type"] == "turn.queued"
    assert {event["turn_id"] for event in events} == {turn["id"]}
    completed = [event["data"] for event in events if event["type"] == "tool.completed"]
    told = {data["call_id"]: (data["tool"], data["outcome"], data["is_error"]) for data in completed}
    assert len(told) == len(completed)
    assert told == {c["call_id"]: (c["tool"], c["outcome"], c["is_error"]) for c in turn["calls"]}
    assert [event["type"] for event in events if event["type"] in TERMINAL] == [f"turn.{turn['status']}"]
    assert events[-1]["type"] == f"turn.{turn['status']}"
    starts, ends = ([e["data"]["step"] for e in events if e["type"] == f"step.{w}"] for w in ("started", "completed"))
    assert starts == ends == list(range(_first_step(turn), _first_step(turn) + len(starts)))


def _check_entries(calls: list[Json], journal: list[Json]) -> None:
    """A body is entered at most once an attempt, never for a denied call; a key is one call's and has one effect."""
    entries = Counter((line["call"], line["attempt"]) for line in journal if line["event"] == "entered")
    assert not [entry for entry, times in entries.items() if times > 1], journal
    effects = Counter(line["key"] for line in journal if line["event"] == "effect")
    assert not [key for key, times in effects.items() if times > 1], journal
    known = {each["call_id"]: each for each in calls}
    _check_keys(known, journal)
    for called, attempt in entries:
        assert known[called]["outcome"] != "ToolDenied", known[called]
        assert attempt <= known[called]["attempt"], known[called]


def _check_keys(calls: dict[str, Json], journal: list[Json]) -> None:
    """A key belongs to one call, unless a later call repeats one that ended in doubt."""
    keys = {(line["call"], line["key"]) for line in journal}
    assert len(keys) == len({call for call, _ in keys}), journal
    for call, key in keys:
        for other in (calls[user] for user, used in keys if used == key and user != call):
            earlier, later = sorted((calls[call], other), key=lambda each: (each["step"], each["position"]))
            assert earlier["content"].startswith(("outcome_unknown: ", "worker_lost: ")), journal
            assert (earlier["tool"], earlier["arguments"]) == (later["tool"], later["arguments"]), journal
