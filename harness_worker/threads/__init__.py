"""Threads of a process: one that does something again and again, one that may never come back, several at once."""

from __future__ import annotations
