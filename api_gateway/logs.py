"""How errors are told in the log."""

from __future__ import annotations


def in_a_line(error: Exception) -> str:
    """What an error says, in one line; its type if it says nothing."""
    return str(error).partition("\n")[0] or type(error).__name__
