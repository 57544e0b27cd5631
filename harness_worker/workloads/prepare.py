"""Prepares what a workload's tools and its sweep need before they start."""

from __future__ import annotations

from collections.abc import Iterable

from harness_worker.adapters.sql.engine import make_engine
from harness_worker.workloads.base import WorkloadTask
from harness_worker.workloads.places import Places
from harness_worker.workloads.script import write_script
from harness_worker.workloads.state import WorkloadState


def prepared(where: Places, tasks: Iterable[WorkloadTask]) -> WorkloadState:
    """Write the script of the tasks, and create the tables of their turns' state.

    Raises:
        TransientError: The database does not answer.
    """
    write_script(where.script, tasks)
    engine = make_engine(where.database_url)
    state = WorkloadState(engine)
    try:
        state.create()
    finally:
        engine.dispose()  # a worker forks next, and its children must not share a connection
    return state
