"""Shows a sweep's progress."""

from __future__ import annotations

from harness_worker.entrypoints.view.counting import CountingProgress
from harness_worker.workloads.base import WorkloadTask
from harness_worker.workloads.verdict import Verdict


class SweepProgress(CountingProgress):
    """Counts verdicts, and reports each task that failed. A context manager."""

    def found(self, task: WorkloadTask, verdict: Verdict) -> None:
        """Count one more task."""
        self.count(task.id, None if verdict.passed else verdict.why[0])
