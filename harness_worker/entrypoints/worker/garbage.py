"""How a worker collects garbage."""

from __future__ import annotations

import gc
from typing import Final

COLLECT_AFTER: Final = 10_000


def keep_what_is_loaded() -> None:
    """Leave what is loaded by now out of garbage collection, and collect less often: most of it lives on for ever."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)
