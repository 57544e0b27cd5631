"""The two roles of workers, and the default concurrency of each."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Final

COORDINATOR_THREADS: Final = 8
_LEAST_TOOLS: Final = 2


class Role(StrEnum):
    """The role of a worker."""

    COORDINATOR = "coordinator"
    TOOLS = "tools"


def tool_processes() -> int:
    """How many processes run tools by default: one per CPU, but at least two."""
    return max(_LEAST_TOOLS, os.cpu_count() or 0)
