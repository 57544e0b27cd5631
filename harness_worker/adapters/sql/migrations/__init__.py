"""Alembic's scripts, shipped with the package; ``migrate.py`` runs them."""

from __future__ import annotations
