"""Celery: sending work, serving it, and the hooks that make a worker's death known."""

from __future__ import annotations
