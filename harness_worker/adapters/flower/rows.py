"""How a task's row reads on Flower's pages: whose it is, instead of its arguments as Python writes them."""

from __future__ import annotations

import re
from typing import Any, Final

_TURN: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CALL: Final = re.compile(r"'call': '(?P<call>[^']*)'.*'attempt': (?P<attempt>\d+)")


def readable(task: Any) -> Any:  # noqa: ANN401 - Flower has no types
    """The task with the turn in its first column of arguments, and the call and its attempt in the second.

    Args:
        task: A copy of what Flower knows of the task; changed in place. What is not ours stays as it is.
    """
    shown = f"{task.args} {task.kwargs}"
    turn, call = _TURN.search(shown), _CALL.search(shown)
    if turn is None:
        return task
    task.args = f"turn {turn[0]}"
    task.kwargs = f"call {call['call']}, attempt {call['attempt']}" if call else ""
    return task
