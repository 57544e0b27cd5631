"""How a tool process runs one call: a read, whose arbiter is the gate, or a write, whose arbiter is SQL."""

from __future__ import annotations
