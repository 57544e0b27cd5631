"""Looks a stack over and says what to mend."""

from __future__ import annotations

from harness_worker.entrypoints.doctor.examine import Examination, examine
from harness_worker.entrypoints.doctor.finding import Finding, State
from harness_worker.entrypoints.doctor.places import Places, find_places

__all__ = ["Examination", "Finding", "Places", "State", "examine", "find_places"]
