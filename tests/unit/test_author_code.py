"""What an author's function raises."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest

from harness_worker.core.registration.author_code import Raised, attempt


def interrupted() -> NoReturn:
    """Raise what a Ctrl-C raises."""
    raise KeyboardInterrupt


def test_interrupt_on_a_thread_is_the_author_s_own() -> None:
    """Ctrl-C arrives in the main thread only; a coordinator calls authors on others, and goes on."""
    with ThreadPoolExecutor(1) as threads:
        raised = threads.submit(attempt, interrupted).result()
    assert isinstance(raised, Raised)
    assert isinstance(raised.error, KeyboardInterrupt)


def test_interrupt_of_the_main_thread_is_a_ctrl_c() -> None:
    """It stops a notebook's turn."""
    with pytest.raises(KeyboardInterrupt):
        attempt(interrupted)
