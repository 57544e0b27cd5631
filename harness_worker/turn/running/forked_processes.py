"""Calling code that may fork: a process that it forked ends where that code ends, and never acts as the harness."""

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
    """What ``code`` returns or raises; a child that it forked leaves instead, as at the end of a script.

    Only without clean-up, for all that there is to clean up is the parent's: open connections, leases, files.
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
    """What Python makes of an exception that nobody catches; says it where Python does."""
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    sys.stderr.write(f"{error.code}\n")
    return 1
