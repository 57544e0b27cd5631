"""Alembic's entry: runs the revisions on the connection that ``migrate.py`` hands over."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
