"""The multi-turn tasks of the Berkeley Function Calling Leaderboard as a workload."""

from __future__ import annotations
