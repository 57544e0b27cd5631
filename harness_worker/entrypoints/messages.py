"""The command line's exit codes, and the beginning of its error messages."""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
"""The work failed."""

WRONG_USAGE: Final = 2
UNREACHABLE: Final = 3
"""The stack, or a service it needs, does not answer."""

INTERRUPTED: Final = 130
"""Somebody pressed Ctrl-C."""

MESSAGE_PREFIX: Final = "harness: "
"""What every error message of the command line starts with, also in a child's log."""
