"""Treating a lack of memory, files or space as a passing error, which is not a fault of the request."""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from harness_worker.errors import TransientError

_ERRNOS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT}
)
"""Too many open files, in the process or on the host; no memory, buffers, processes or disk space left."""


@contextmanager
def scarcity_is_transient() -> Generator[None]:
    """Turn errors that are raised within the context for lack of memory, files or space into passing ones.

    Raises:
        TransientError: The system was short of one of them.
    """
    try:
        yield
    except (MemoryError, OSError) as error:
        if not _is_scarcity(error):
            raise
        raise TransientError(f"the system had too little of something: {error!r}") from error


def is_passing(error: Exception) -> bool:
    """Whether the same work may succeed later: something did not answer, or the system was short of something.

    This makes nothing new, because making a :class:`TransientError` of a lack of memory may fail for the same lack.
    """
    return isinstance(error, TransientError) or _is_scarcity(error)


def _is_scarcity(error: Exception) -> bool:
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _ERRNOS)
