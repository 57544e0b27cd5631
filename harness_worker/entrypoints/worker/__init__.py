"""Runs a worker of either role in the foreground, and names it."""

from __future__ import annotations
