"""Makes a task's row on Flower's pages readable: it names the turn and the call instead of showing raw arguments."""

from __future__ import annotations

import re
from typing import Any, Final

from harness_worker.wire import ADVANCE_TASK, JUDGE_TASK, SUBMIT_TASK, TOOL_TASK_PREFIX

_TURN_TASKS: Final = frozenset({ADVANCE_TASK, JUDGE_TASK, SUBMIT_TASK})
_TURN: Final = re.compile(r"(?:^\('|^\(turn=|'turn': ')(?P<turn>[A-Za-z0-9_.-]+)(?=['),])")
_JUDGE: Final = re.compile(r"^\('[^']*', '(?P<judge>[^']*)'\)")
_CALL: Final = re.compile(r"'call': '(?P<call>[^']*)'.*'attempt': (?P<attempt>\d+)")


def readable(task: Any) -> Any:  # noqa: ANN401 - Flower has no types
    """The task with the turn in its first column of arguments; in the second the call and its attempt, or the judge.

    Args:
        task: A copy of what Flower knows about the task; changed in place. Tasks that are not ours stay as they are.
    """
    shown = f"{task.args} {task.kwargs}"
    turn = _TURN.search(shown)
    if turn is None or not _is_ours(str(task.name)):
        return task
    task.args, task.kwargs = f"turn {turn['turn']}", ""
    if call := _CALL.search(shown):
        task.kwargs = f"call {call['call']}, attempt {call['attempt']}"
    elif judge := _JUDGE.search(shown):
        task.kwargs = f"judge {judge['judge']}"
    return task


def _is_ours(name: str) -> bool:
    return name in _TURN_TASKS or name.startswith(TOOL_TASK_PREFIX)
