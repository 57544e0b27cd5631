"""Gate, locks and events in this process, for turns that are driven without Redis."""

from __future__ import annotations
