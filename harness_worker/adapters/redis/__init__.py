"""Redis or Valkey: the gate, locks, live events and counters."""

from __future__ import annotations
