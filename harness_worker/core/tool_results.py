"""Outcomes made of what a tool returned or raised (docs/how-to/write-tools.md, "Fail well").

A tool's failure is an outcome, never an exception: both functions here return one for whatever they are given.
"""

from __future__ import annotations

import os
import re

from harness_worker.core.outcomes import (
    OUTCOME_UNKNOWN,
    DenialReason,
    ToolDenied,
    ToolExecutionResult,
    ToolFailure,
    ToolOutcome,
)
from harness_worker.core.registration.author_code import words_of
from harness_worker.core.registration.content import compact_or_text, to_json
from harness_worker.core.text import clean_text
from harness_worker.errors import ArgumentsOutdated, ToolError, ToolOutcomeUnknown, UnserialisableResult

MAX_ERROR_CHARS = 2_000
PATH = "<path>"

_MAX_READ_CHARS = 100_000

_TRACEBACK = re.compile(r"^[ \t]*Traceback \(most recent call last\):[ \t]*\n?", re.MULTILINE)
_FRAME = re.compile(r'^[ \t]*File "[^\n]*\n?(?:[ \t]{4,}[^\n]*\n?)*', re.MULTILINE)
_QUOTED_PATH = re.compile(r"""(?P<quote>['"])(?:file://|~|\.{1,2})?/(?:(?!(?P=quote)).)*(?P=quote)""")
_BARE_PATH = re.compile(r"(?<![\w/.<>~-])(?:file://|~|\.{1,2})?/[\w.+@%~-]+(?:/[\w.+@%~-]*)*")
_WINDOWS_PATH = re.compile(r"(?<!\w)(?:[A-Za-z]:|\\)\\[^\s'\"<>|*?]+")


def outcome_of_return(
    call_id: str, tool_name: str, value: object, *, elapsed_ms: float, was_coerced: bool = False
) -> ToolOutcome:
    """The outcome of a tool that returned.

    Args:
        call_id: The call.
        tool_name: Its tool.
        value: What the tool returned. A dict with a non-null ``error`` is a failure; a string never is.
        elapsed_ms: How long the body ran.
        was_coerced: Whether an argument had to be converted.

    Raises:
        MemoryError: There is too little memory for its JSON, so that the caller has to say what is known of the call.
    """
    try:
        plain = to_json(value)
    except UnserialisableResult as refused:
        return ToolFailure(call_id=call_id, tool_name=tool_name, error=str(refused), elapsed_ms=elapsed_ms)
    text = compact_or_text(plain)
    if isinstance(value, dict) and isinstance(plain, dict) and plain.get("error") is not None:
        return ToolFailure(call_id=call_id, tool_name=tool_name, error=text, elapsed_ms=elapsed_ms)
    return ToolExecutionResult(
        call_id=call_id, tool_name=tool_name, output=text, elapsed_ms=elapsed_ms, was_coerced=was_coerced
    )


def outcome_of_exception(
    call_id: str, tool_name: str, error: BaseException, *, elapsed_ms: float, is_read: bool = True
) -> ToolOutcome:
    """The outcome of a tool that raised, whatever it raised; a call whose arguments did not fit is denied.

    The message of a :class:`ToolError` is used verbatim unless it is blank, and is cut later. Anything else becomes
    ``TypeName: message``, at most 2,000 characters, without file paths and stack frames. A write whose outcome is
    unknown is in doubt.
    """
    if isinstance(error, ArgumentsOutdated):
        reason = DenialReason.VALIDATION
        return ToolDenied(call_id=call_id, tool_name=tool_name, reason=reason, details=str(error))
    if isinstance(error, ToolError):
        said, retryable = _said(clean_text(words_of(error))), error.retryable
        if isinstance(error, ToolOutcomeUnknown) and not is_read:
            doubt = f"{OUTCOME_UNKNOWN}: {tool_name} started, and {said}; its effect may or may not have happened"
            return ToolFailure(call_id=call_id, tool_name=tool_name, error=doubt, elapsed_ms=elapsed_ms, in_doubt=True)
    else:
        said, retryable = describe(error), True
    return ToolFailure(call_id=call_id, tool_name=tool_name, error=said, retryable=retryable, elapsed_ms=elapsed_ms)


def describe(error: BaseException) -> str:
    """An exception in a few lines, for readers who may see neither file paths nor stack frames.

    Only the beginning of a very long message is read, because searching all of it for paths could take too long.
    """
    message = without_paths(_without_frames(_without_file_names(error, words_of(error)[:_MAX_READ_CHARS]))).strip()
    text = clean_text(f"{type(error).__name__}: {_said(message)}")
    return text if len(text) <= MAX_ERROR_CHARS else f"{text[: MAX_ERROR_CHARS - 1]}…"


def without_paths(message: str) -> str:
    """``message`` with each absolute, home or dotted file path replaced by ``<path>``; URLs stay."""
    quoted = _QUOTED_PATH.sub(rf"\g<quote>{PATH}\g<quote>", message)
    return _BARE_PATH.sub(PATH, _WINDOWS_PATH.sub(PATH, quoted))


def _said(message: str) -> str:
    """The message, or a stand-in if it is blank, because a provider refuses an error without text."""
    return message if message.strip() else "(no message)"


def _without_frames(message: str) -> str:
    """The message; if it quotes a traceback, only the traceback's last lines are kept of that."""
    return _FRAME.sub("", _TRACEBACK.sub("", message))


def _without_file_names(error: BaseException, message: str) -> str:
    """The message of an operating system error without its file's name, which may be a relative path."""
    if not isinstance(error, OSError):
        return message
    for name in (error.filename, error.filename2):
        if isinstance(name, str | bytes) and os.sep in os.fsdecode(name):
            message = message.replace(repr(name), repr(PATH))
    return message
