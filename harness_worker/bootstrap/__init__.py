"""Wires the parts together. Nothing else does."""

from __future__ import annotations
