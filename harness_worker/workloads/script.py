"""Turns recorded calls into lines for the scripted model.

If the authors say which calls belong to one message, that is followed. Otherwise every run of consecutive reads is one
message, and so is every run of consecutive writes: the harness runs these one after the other, which equals the plain
replay, and exercises chains of several writes.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from harness_worker.core.canonical import compact
from harness_worker.workloads.base import RecordedCall, WorkloadTask

Line = dict[str, Any]


def messages_of(task: WorkloadTask) -> list[list[RecordedCall]]:
    """The task's calls as the model requests them: one list for each message."""
    if task.messages is None:
        return [list(run) for _, run in groupby(task.calls, key=lambda call: call.is_read)]
    calls = iter(task.calls)
    return [list(islice(calls, count)) for count in task.messages]


def script_lines(task: WorkloadTask) -> list[Line]:
    """The lines of one task's script, which is named after the task's id and ends with a line of text."""
    messages = messages_of(task)
    asking = [
        _line(task, step, [_tool_use(step, position, call) for position, call in enumerate(calls)])
        for step, calls in enumerate(messages)
    ]
    done = {"type": "text", "text": f"Done: {len(task.calls)} recorded actions."}
    return [*asking, _line(task, len(messages), [done])]


def write_script(path: Path, tasks: Iterable[WorkloadTask]) -> None:
    """Write every task's lines to ``path``, atomically; a file with the same content is left alone."""
    text = "".join(compact(line) + "\n" for task in tasks for line in script_lines(task))
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{secrets.token_hex(8)}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def ideal_waves(tasks: Sequence[WorkloadTask]) -> int:
    """The fewest waves that the tasks' calls need: one for each run of reads with distinct arguments and each write."""
    return sum(_waves(calls) for task in tasks for calls in messages_of(task))


def _waves(calls: Sequence[RecordedCall]) -> int:
    if not calls[0].is_read:
        return len(calls)
    waves, seen = 1, set[tuple[str, str]]()
    for key in ((call.tool, compact(dict(call.arguments))) for call in calls):
        if key in seen:
            waves, seen = waves + 1, set[tuple[str, str]]()
        seen.add(key)
    return waves


def _line(task: WorkloadTask, step: int, content: list[Line]) -> Line:
    return {"script": task.id, "step": step, "content": content}


def _tool_use(step: int, position: int, call: RecordedCall) -> Line:
    name = f"toolu_{step}_{position}"
    return {"type": "tool_use", "id": name, "name": call.tool, "input": dict(call.arguments)}
