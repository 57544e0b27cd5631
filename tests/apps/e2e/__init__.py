"""The app of the end-to-end suite: tools that work, and tools that misbehave in every way."""

from __future__ import annotations
