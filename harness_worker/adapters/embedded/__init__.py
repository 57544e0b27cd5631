"""Servers that come with the package, and child processes that never outlive their parent."""

from __future__ import annotations
