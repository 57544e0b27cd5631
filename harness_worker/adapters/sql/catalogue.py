"""Clearing the catalogue of what nobody serves any more."""

from __future__ import annotations

from sqlalchemy import delete

from harness_worker.adapters.sql.engine import make_engine
from harness_worker.adapters.sql.failures import translated
from harness_worker.schema import agents


def keep_only_agents_of(url: str, app: str) -> None:
    """Forget every agent that another application published; for a database that one stack has to itself.

    Args:
        url: The database.
        app: The import string whose agents stay.

    Raises:
        TransientError: The database did not answer.
    """
    engine = make_engine(url)
    try:
        with translated(engine.url), engine.begin() as connection:
            connection.execute(delete(agents).where(agents.c.app != app))
    finally:
        engine.dispose()
