"""A client of the gateway's HTTP API: requests, errors, retries through restarts, a turn's events."""

from __future__ import annotations
