"""Checks a stack and says what to fix."""

from __future__ import annotations
