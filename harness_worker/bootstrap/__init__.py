"""Wires the parts together; only this package does."""

from __future__ import annotations
