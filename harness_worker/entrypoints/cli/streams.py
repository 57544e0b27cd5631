"""The standard streams, as this process got them."""

from __future__ import annotations

import io
import sys


def take_any_text() -> None:
    """Have stdout write what its encoding cannot show as escapes, as stderr does anyway."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # pyright: ignore[reportUnknownMemberType] - of any buffer
