"""How ``harness gateway`` and ``harness flower`` listen, and when the gateway cuts a connection."""

from __future__ import annotations
