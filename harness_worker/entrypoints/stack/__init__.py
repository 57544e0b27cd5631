"""The embedded stack: everything the harness needs, as one supervised group of processes on one home."""

from __future__ import annotations

from harness_worker.entrypoints.stack.info import StackInfo, running_stack
from harness_worker.entrypoints.stack.subprocess_stack import open_stack

__all__ = ["StackInfo", "open_stack", "running_stack"]
