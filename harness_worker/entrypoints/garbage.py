"""How the processes of the harness collect garbage."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

COLLECT_AFTER: Final = 10_000


@contextmanager
def loading() -> Generator[None]:
    """Load modules without looking for garbage, of which that makes little: a fifth of the time it takes otherwise."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def keep_what_is_loaded() -> None:
    """Leave what is loaded by now out of garbage collection, and collect less often: most of it lives on for ever."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)
