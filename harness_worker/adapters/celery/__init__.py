"""Celery: sending work, serving it, and the hooks that report the death of a worker's process."""

from __future__ import annotations
