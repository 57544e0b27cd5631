"""Gate, locks and events in this process, for turns driven without Redis."""

from __future__ import annotations
