"""Servers that come with the package, and what it takes to run child processes that never outlive their parent."""

from __future__ import annotations
