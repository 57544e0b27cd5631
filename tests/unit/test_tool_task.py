"""What a tool task does with a message before its runner sees it."""

from __future__ import annotations

from typing import Any, cast

import pytest
from celery.exceptions import Ignore

from harness_worker.adapters.celery.tasks import ToolTask

NEWER = {"v": 2, "turn_id": "t", "call_id": "0.0", "attempt": 1, "read": False, "tenant": "default", "more": 1}


@pytest.mark.parametrize(
    ("kwargs", "said"), [(NEWER, "left to a newer worker"), ({**NEWER, "v": 1}, "dropped"), ({}, "dropped")]
)
def test_message_that_is_not_for_this_worker_starts_nothing(
    kwargs: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is run, failed or told to the gate: the canvas stays where it is, and the next look-in sends the call."""
    task = ToolTask("look", cast("Any", None), cast("Any", None))
    with pytest.raises(Ignore):
        task.run(**kwargs)
    assert said in caplog.text
