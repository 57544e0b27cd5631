"""A directory to put on ``PYTHONPATH``, so that workers die at lines of their own code."""

from __future__ import annotations
