"""A directory for ``PYTHONPATH``: workers that die at lines of their own code."""

from __future__ import annotations
