"""``harness sweep``: its commands, what runs the tasks, and the stack that they run on."""

from __future__ import annotations
