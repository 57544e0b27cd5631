"""A model that says what a file says, behind ``ports.ModelClient``."""

from __future__ import annotations
