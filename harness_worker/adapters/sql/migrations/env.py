"""Alembic's entry: runs the revisions on the connection that ``migrate.py`` hands over."""

from __future__ import annotations

from alembic import context

from harness_worker.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
context.run_migrations()
