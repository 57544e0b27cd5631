"""Clearing the catalogue of what nobody serves any more."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, delete

from harness_worker.adapters.sql.engine import make_engine
from harness_worker.adapters.sql.transactions import Outcome, write
from harness_worker.schema import agents

_OTHERS: Final = delete(agents).where(agents.c.app != bindparam("this_app"))


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
        write(engine, lambda _: Outcome(value=None, writes=[(_OTHERS, [{"this_app": app}])]))
    finally:
        engine.dispose()
