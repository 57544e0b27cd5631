"""The rules of the harness as pure functions and frozen values: no I/O, no clock, no randomness."""

from __future__ import annotations
