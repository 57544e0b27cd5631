"""Checks a stack and says what to fix."""

from __future__ import annotations

from harness_worker.entrypoints.doctor.examine import Examination, examine
from harness_worker.entrypoints.doctor.finding import Finding, State

__all__ = ["Examination", "Finding", "State", "examine"]
