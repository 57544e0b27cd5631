"""``harness turns``: its commands, and how calls that wait for a person are answered."""

from __future__ import annotations
