"""A worker of either role in the foreground, and what it is called."""

from __future__ import annotations
