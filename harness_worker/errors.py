"""The errors of the harness.

HarnessError
├── Stopped              a model call was told to stop
├── OutOfTime            a turn's time ended before its model answered
├── ConfigError          a setting, a registration or an option is wrong; the message says which, and what to change
│   └── UnmigratedError  the database lacks tables of this version
├── WireError            a message or a body does not have the agreed shape
│   └── NewerWire        it is of a later version: not wrong, but for a newer worker
├── TransientError       worth trying again: a broker, a database or a provider did not answer
├── PermanentError       not worth trying again
│   ├── ModelError       the model's provider refused or failed for good; ends the turn
│   │   └── PromptTooLong    the prompt is longer than its model can read
│   └── ScriptExhausted  a scripted model has no line for this step
├── InvariantError       the harness broke one of its own rules: a bug
├── ArgumentsInvalid     a tool call's arguments do not fit the tool's schema
│   └── ArgumentsOutdated they fitted when the call was planned, but a deployment has changed the tool
├── UnserialisableResult a tool returned a value that JSON cannot represent
└── ToolError            raised by a tool; the model reads its message
    └── ToolTransientError   retried without the model's knowledge if the tool is retry_safe
        └── ToolOutcomeUnknown   and nobody can tell whether the call took effect
"""

from __future__ import annotations

import errno
from typing import Final

SYSTEM_ERRORS: Final = (MemoryError, OSError)
"""What the system raises when it fails or is short of something; no bug, and likely to pass, here or elsewhere."""

SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""The ``errno`` of an error that says nothing about the file: the system was short of descriptors or memory."""


class HarnessError(Exception):
    """Root of every error the harness raises on purpose."""


class Stopped(HarnessError):  # noqa: N818 - reads as what it says
    """A model call was told to stop.

    Args:
        said: What the model had said by then.
    """

    def __init__(self, said: str = "") -> None:
        super().__init__("stopped")
        self.said = said


class OutOfTime(HarnessError):  # noqa: N818 - reads as what it says
    """A turn's time ended before its model answered."""


class ConfigError(HarnessError):
    """A setting, a registration or an option is wrong."""


class UnmigratedError(ConfigError):
    """The database lacks tables of this version.

    Args:
        lacking: What lacks them, and what the database said.
        home_option: The option by which `harness migrate` finds it, after a space, if that is known.
    """

    def __init__(self, lacking: str, home_option: str = "") -> None:
        super().__init__(lacking, home_option)
        self.lacking = lacking
        self.home_option = home_option

    def __str__(self) -> str:
        return f"{self.lacking}: run `harness migrate{self.home_option}`"


class WireError(HarnessError):
    """A message or a body does not have the agreed shape."""


class NewerWire(WireError):  # noqa: N818 - reads as what it says
    """A message of a later version, which this worker cannot read and a newer one can."""


class TransientError(HarnessError):
    """Something outside did not answer; the same request may work later.

    Args:
        message: What did not answer, and how.
        retry_after_s: How long it asked to wait before the next try, in seconds, if it did.
    """

    def __init__(self, message: str = "", *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class PermanentError(HarnessError):
    """The same request will fail again."""


class ModelError(PermanentError):
    """The model's provider refused the request or failed for good."""


class PromptTooLong(ModelError):  # noqa: N818 - reads as what it says
    """The request is longer than the model, or a proxy before it, accepts."""


class ScriptExhausted(PermanentError):  # noqa: N818 - named after the stop reason it leads to
    """A scripted model has no line for the step it was asked for."""


class InvariantError(HarnessError):
    """The harness broke one of its own rules."""


class ArgumentsInvalid(HarnessError):  # noqa: N818 - reads as what it says
    """A tool call's arguments do not fit the tool's schema.

    Args:
        problems: One line for each problem, naming the argument.
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class ArgumentsOutdated(ArgumentsInvalid):
    """A tool call's arguments fitted the tool when they were bound, but do not fit the version that is to run."""


class UnserialisableResult(HarnessError):  # noqa: N818 - reads as what it says
    """A tool returned a value that JSON cannot represent; the message names its type and path."""


class ToolError(HarnessError):
    """Raise from a tool to fail with a message for the model.

    Args:
        message: What the model reads: verbatim, but cut at the length above which an output becomes an artifact.
        retryable: Whether the model may ask again; ``False`` blocks the tool for the rest of the turn.
    """

    retryable: bool = True  # for subclasses whose ``__init__`` does not call this one

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = bool(retryable)  # numpy's have no JSON


class ToolTransientError(ToolError):
    """Raise from a tool for a passing fault; retried with backoff until the deadline if the tool is ``retry_safe``."""


class ToolOutcomeUnknown(ToolTransientError):  # noqa: N818 - reads as what it says
    """Raise from a tool that sent a request and got no answer; a write then ends in doubt instead of failing."""
