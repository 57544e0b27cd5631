"""What ``harness gateway`` and ``harness flower`` serve with: the socket, and connections that are cut in time."""

from __future__ import annotations
