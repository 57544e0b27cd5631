"""How the processes of a worker collect garbage."""

from __future__ import annotations

import gc
from typing import Final

COLLECT_AFTER: Final = 10_000


def keep_what_is_loaded() -> None:
    """Exempt what is loaded by now from garbage collection, as it lives for ever, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)
