"""The gateway's HTTP API from outside: calls, refusals, patience with restarts, a turn's events."""

from __future__ import annotations
