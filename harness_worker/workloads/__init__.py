"""Real tasks that nobody here wrote, driven through the harness and held against a plain replay of the same calls."""

from __future__ import annotations
