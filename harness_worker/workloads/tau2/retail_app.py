"""The app of the workload ``tau2-retail``: ``harness up --app harness_worker.workloads.tau2.retail_app:registry``.

Importing it loads the database once, before a worker forks, and writes the script that the agent plays.
"""

from __future__ import annotations

from harness_worker.config import load_settings
from harness_worker.workloads.tau2.serve import tau2_workload

registry = tau2_workload("retail", load_settings()).registry()
