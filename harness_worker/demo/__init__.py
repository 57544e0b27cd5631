"""A small shop whose support agent shows the harness at work: ``harness demo``."""

from __future__ import annotations
