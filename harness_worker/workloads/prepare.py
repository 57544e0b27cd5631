"""Prepares what a workload's tools and its sweep need before they start."""

from __future__ import annotations

from collections.abc import Iterable

from harness_worker.adapters.sql.engine import make_engine
from harness_worker.workloads.base import WorkloadTask
from harness_worker.workloads.places import Places
from harness_worker.workloads.script import write_script
from harness_worker.workloads.state import WorkloadState


def prepare(where: Places, tasks: Iterable[WorkloadTask]) -> None:
    """Write the script of the tasks and create the tables.

    Raises:
        TransientError: The database does not answer.
    """
    write_script(where.script, tasks)
    # An engine of its own, disposed of before a worker forks, because children must not share a connection.
    engine = make_engine(where.database_url)
    try:
        WorkloadState(engine).create()
    finally:
        engine.dispose()
