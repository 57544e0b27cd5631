"""A seeded discrete-event simulation that drives the real engine through faults of every kind."""

from __future__ import annotations
