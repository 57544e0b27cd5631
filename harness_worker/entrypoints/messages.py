"""How the command line speaks."""

from __future__ import annotations

from typing import Final

MESSAGE_PREFIX: Final = "harness: "
"""What every error message of the command line starts with, also in a child's log."""
