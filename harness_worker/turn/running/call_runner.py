"""What a tool process does with one message: run a read if the gate allows it, any other call if the journal does."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from harness_worker.errors import TransientError
from harness_worker.turn.running.job import Canvas, Job
from harness_worker.turn.running.reads import ReadRunner
from harness_worker.turn.running.writes import WriteRunner

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRunner:
    """Runs calls; keeps no state of any call.

    Args:
        reads: Runs the calls whose arbiter is the gate.
        writes: Runs all others.
    """

    reads: ReadRunner
    writes: WriteRunner

    @property
    def tools(self) -> Collection[str]:
        """The names of the tools that this process serves."""
        return self.reads.execution.tools

    def run(self, job: Job) -> Canvas:
        """Serve one message. A call that could not be started is sent again by a look-in.

        Raises no ``TransientError``. If anything else is raised, the task fails, and the parent process reports the
        call as lost.
        """
        try:
            return self.reads.run(job) if job.is_read else self.writes.run(job)
        except TransientError as error:
            log.warning("%s not started, a look-in sends it again: %s", job, error)
            return Canvas.CONTINUES if job.is_read else Canvas.STAYS
