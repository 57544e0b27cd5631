"""The two roles of workers, and how much each does at a time unless somebody says."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Final

COORDINATOR_THREADS: Final = 8
_LEAST_TOOLS: Final = 2


class Role(StrEnum):
    """What a worker does."""

    COORDINATOR = "coordinator"
    TOOLS = "tools"


def tool_processes() -> int:
    """How many processes run tools: the CPUs, at least two."""
    return max(_LEAST_TOOLS, os.cpu_count() or 0)
