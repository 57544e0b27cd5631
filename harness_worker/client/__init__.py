"""The HTTP API as Python calls: requests, errors, retries through restarts, a turn's events."""

from __future__ import annotations
