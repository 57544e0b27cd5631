"""Implementations of the ports, one outside library each, independent of each other."""

from __future__ import annotations
