"""Names of models in the declarations of agents, their memories and judges."""

from __future__ import annotations

from typing import Any, Final

from harness_worker.core.text import UNSTORABLE

SCRIPTED: Final = "scripted:"
"""The prefix of a script's file: the script is played instead of asking a model."""


def is_model_name(given: Any) -> bool:  # noqa: ANN401 - what an author wrote
    """Whether it can be a model's name: text that is not blank, not even after ``scripted:``."""
    return isinstance(given, str) and bool(given.removeprefix(SCRIPTED).strip()) and UNSTORABLE.search(given) is None
