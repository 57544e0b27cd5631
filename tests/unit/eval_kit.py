"""Cases, and turns as a gateway gives them."""

from __future__ import annotations

import json
from typing import Any

from harness_worker.evaluation.cases import Case, read_cases
from harness_worker.evaluation.cells import Cell

AT = "2026-01-01T00:00:00.000000Z"
LATER = "2026-01-01T00:00:02.500000Z"
NAMES = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "dollars", "steps", "tool_calls")


def case(**members: object) -> Case:
    """A case of a file of one."""
    (found,) = read_cases("cases.jsonl", json.dumps({"id": "c", "input": "hi", **members}).encode())
    return found


def cell(repeat: int = 1, agent: str = "clerk", sweep: str = "s", **members: object) -> Cell:
    """A cell of such a case."""
    return Cell(sweep=sweep, agent=agent, case=case(**members), repeat=repeat)


def call(tool: str, *, is_error: bool = False, outcome: str | None = "ToolExecutionResult", **arguments: object) -> Any:  # noqa: ANN401 - JSON
    """A call of a turn."""
    return {
        "call_id": "0.0",
        "tool_use_id": "u",
        "tool": tool,
        "effect": None,
        "step": 0,
        "wave": 0,
        "position": 0,
        "arguments": arguments,
        "outcome": outcome,
        "content": "",
        "is_error": is_error,
        "attempt": 1,
        "worker": None,
        "started_at": AT,
        "finished_at": AT,
    }


def score(judge: str, value: float | None, *, error: str | None = None, at: str | None = AT) -> Any:  # noqa: ANN401 - JSON
    """What a judge says."""
    return {"judge": judge, "score": value, "reason": "", "error": error, "at": at}


def turn(answer: object = "Hello.", *calls: object, **members: object) -> Any:  # noqa: ANN401 - JSON
    """A completed turn with its scores and its messages."""
    return {
        "id": "t1",
        "status": "completed",
        "stop_reason": "end_turn",
        "agent": "clerk",
        "session_id": "s1",
        "input": "hi",
        "output_text": answer,
        "citations": [{"kind": "web", "id": "http://a", "title": "A", "source": "http://a", "quote": None}],
        "usage": dict.fromkeys(NAMES, 2),
        "budget": {"max_steps": 6, "max_tool_calls": 6, "max_reflections": 4, "max_tokens": None, "max_dollars": 1.0,
                   "timeout_s": 60.0},
        "required_actions": [],
        "error": None,
        "decision": "direct_answer",
        "metadata": {},
        "created_at": AT,
        "started_at": AT,
        "finished_at": LATER,
        "calls": list(calls),
        "context": [],
        "messages": [{"role": "user", "content": "hi"}],
        "scores": [],
        **members,
    }  # fmt: skip
