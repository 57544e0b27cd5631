"""Treating errors of the system, such as a lack of memory or a failing disk, as passing: they are no bugs."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from harness_worker.errors import SYSTEM_ERRORS, TransientError


@contextmanager
def system_errors_are_transient() -> Generator[None]:
    """Turn errors of the system that are raised within the context into passing ones.

    Raises:
        TransientError: The system failed, or was short of something.
    """
    try:
        yield
    except SYSTEM_ERRORS as error:
        if not _is_said_by_the_system(error):
            raise
        raise TransientError(f"the system failed: {error!r}") from error


def is_passing(error: BaseException) -> bool:
    """Whether the same work may succeed later, here or elsewhere: something did not answer, or the system failed.

    This makes nothing new, because making a :class:`TransientError` of a lack of memory may fail for the same lack.
    """
    return isinstance(error, TransientError) or _is_said_by_the_system(error)


def _is_said_by_the_system(error: BaseException) -> bool:
    """Without an ``errno``, an ``OSError`` is not the system's own, such as the ``TimeoutError`` of a wait."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None)
