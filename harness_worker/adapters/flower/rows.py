"""Makes a task's row on Flower's pages readable: it names the turn and the call instead of showing raw arguments."""

from __future__ import annotations

import re
from typing import Any, Final

_TURN: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CALL: Final = re.compile(r"'call': '(?P<call>[^']*)'.*'attempt': (?P<attempt>\d+)")


def readable(task: Any) -> Any:  # noqa: ANN401 - Flower has no types
    """The task with the turn in its first column of arguments, and the call and its attempt in the second.

    Args:
        task: A copy of what Flower knows about the task; changed in place. Tasks that are not ours stay as they are.
    """
    shown = f"{task.args} {task.kwargs}"
    turn, call = _TURN.search(shown), _CALL.search(shown)
    if turn is None:
        return task
    task.args = f"turn {turn[0]}"
    task.kwargs = f"call {call['call']}, attempt {call['attempt']}" if call else ""
    return task
