"""Names of models, as agents, their memories and judges give them."""

from __future__ import annotations

from typing import Any, Final

from harness_worker.core.text import UNSTORABLE

PLAYED: Final = "scripted:"
"""Before a script's file: no model is asked, the script is played."""


def is_model_name(given: Any) -> bool:  # noqa: ANN401 - what an author wrote
    """Whether it can name a model: it is a text that says something, also behind ``scripted:``."""
    return isinstance(given, str) and bool(given.removeprefix(PLAYED).strip()) and UNSTORABLE.search(given) is None
