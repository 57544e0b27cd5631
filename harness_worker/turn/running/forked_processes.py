"""Calling code that may fork: a process that it forks ends where that code ends, and never acts as the harness."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def in_this_process(code: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return or raise what ``code`` does; in a child that it forked, exit instead, as at the end of a script.

    The child exits without clean-up, because everything to clean up is the parent's: connections, leases, files.
    """
    mine, leaves_with = os.getpid(), 0
    try:
        return code(*args, **kwargs)
    except BaseException as error:
        if os.getpid() != mine:
            leaves_with = 1
            leaves_with = _exit_code(error)
        raise
    finally:
        if os.getpid() != mine:
            with suppress(BaseException):
                sys.stdout.flush()
            os._exit(leaves_with)


def _exit_code(error: BaseException) -> int:
    """The exit code that Python gives for an uncaught exception, which is printed as Python does."""
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    sys.stderr.write(f"{error.code}\n")
    return 1
