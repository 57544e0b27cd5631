"""The app of the workload ``bfcl-multi-turn``: ``harness up --app harness_worker.workloads.bfcl.app:registry``.

Importing it loads the tasks once, before a worker forks, and writes the script that the agent plays.
"""

from __future__ import annotations

from harness_worker.config import load_settings
from harness_worker.workloads.bfcl.serve import bfcl_workload

registry = bfcl_workload(load_settings()).registry()
