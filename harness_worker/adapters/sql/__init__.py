"""The store on SQLite and Postgres, through SQLAlchemy Core."""

from __future__ import annotations
