"""Commands that only ask the gateway begin at once: they load no database, no Redis and nothing of a worker."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("celery", "psycopg", "redis", "sqlalchemy", "harness_worker.ports", "harness_worker.turn")


@pytest.mark.parametrize("command", ["turns", "batches", "usage", "agents", "run"])
def test_command_of_a_client_loads_nothing_of_a_worker(command: str) -> None:
    """What it imports is what it needs."""
    asked = f"import sys, harness_worker.entrypoints.cli.{command}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in HEAVY if name in loaded] == []
