"""How the processes of the harness collect garbage."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

COLLECT_AFTER: Final = 10_000


@contextmanager
def loading() -> Generator[None]:
    """Within the context, modules are loaded without garbage collection; they make little garbage, and load faster."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def keep_what_is_loaded() -> None:
    """Exempt what is loaded by now from garbage collection, as it lives for ever, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)
