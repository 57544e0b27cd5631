"""What a tool process does with one call: reads, of which the gate is the arbiter, and writes, of which SQL is."""

from __future__ import annotations
