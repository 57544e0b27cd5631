"""Explains to the person who started a stack why it did not start."""

from __future__ import annotations

import signal

from harness_worker.entrypoints.messages import INTERRUPTED, MESSAGE_PREFIX, UNREACHABLE, WRONG_USAGE
from harness_worker.errors import ConfigError, HarnessError, TransientError


class StartFailed(HarnessError):  # noqa: N818 - reads as what it says
    """A process of the stack did not start."""


def start_failure(role: str, code: int, last_words: str, log: str = "its log above") -> HarnessError:
    """The error for a child that ended before it was ready, of the class that its exit code stands for.

    Args:
        role: The child's role.
        code: Its exit code.
        last_words: The end of its log.
        log: Where a person finds all of its log.
    """
    message = own_message(last_words) or _in_words(role, code, log)
    classes: dict[int, type[HarnessError]] = {
        WRONG_USAGE: ConfigError,
        INTERRUPTED: ConfigError,
        UNREACHABLE: TransientError,
    }
    return classes.get(code, StartFailed)(message)


def ending(code: int) -> str:
    """How a process ended, in words, given its exit code; negative for a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    known = {sig.value: sig.name for sig in signal.Signals}  # of the real-time signals, only the first and the last
    return f"was ended by {known.get(-code, f'signal {-code}')}"


def _in_words(role: str, code: int, log: str) -> str:
    if code == INTERRUPTED:  # of which a process says nothing; a Ctrl-C at the terminal does not reach this one
        return f"{role} was interrupted at start: by a signal, or the application raised KeyboardInterrupt"
    return f"{role} {ending(code)} at start; see {log}"


def own_message(log: str) -> str:
    """The last error message of the command line in a log; empty if there is none."""
    lines = log.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith(MESSAGE_PREFIX)]
    return "\n".join(lines[starts[-1] :]).removeprefix(MESSAGE_PREFIX).strip() if starts else ""
