"""Wires the parts together; ``entrypoints/worker`` adds what runs beside a worker's tasks."""

from __future__ import annotations
