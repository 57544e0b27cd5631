"""``harness eval`` and ``harness compare``: asking the cases, the file of results, and what changed."""

from __future__ import annotations
