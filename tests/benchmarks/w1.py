"""Latency of one turn at a time: ``make bench``.

Measures the workload W1 (``tests/apps/w1.py``) from ``POST`` to the finished turn over HTTP, on a stack of its own with
SQLite and Valkey on this machine, after some turns to warm up. The critical path of its tools is 30 ms; the rest is the
harness, HTTP included. Throughput and comparisons with other systems are not measured here.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness_worker.entrypoints.client import GatewayClient
from harness_worker.entrypoints.stack import open_stack

APP: Final = "tests.apps.w1:registry"
WARM_UP: Final = 5
TURNS: Final = 30
CRITICAL_PATH_MS: Final = 30.0


def turn_ms(client: GatewayClient) -> float:
    """Run one turn and return how long it took, in milliseconds."""
    started_s = time.perf_counter()
    turn = client.create_turn({"agent": "w1", "input": "measure"}, wait_s=30)
    elapsed_s = time.perf_counter() - started_s
    if turn["status"] != "completed" or len(turn["calls"]) != 6:
        sys.exit(f"the turn did not complete: {turn}")
    return elapsed_s * 1000


def report(samples_ms: Sequence[float]) -> str:
    """The figures of sorted samples as lines."""
    cut = statistics.quantiles(samples_ms, n=20)
    load = os.getloadavg()[0]
    return (
        f"W1, one turn at a time, {len(samples_ms)} turns, {os.cpu_count()} cores, load {load:.1f}\n"
        f"  p50 {statistics.median(samples_ms):.0f} ms   p95 {cut[-1]:.0f} ms   "
        f"min {min(samples_ms):.0f} ms   max {max(samples_ms):.0f} ms\n"
        f"  of which tools, on the critical path: {CRITICAL_PATH_MS:.0f} ms"
    )


def main() -> None:
    """Start a stack, measure, print."""
    sys.stdout.write("Starting a stack …\n")
    with (
        tempfile.TemporaryDirectory() as home,
        open_stack(home=Path(home), app=APP, tools=8) as stack,
        GatewayClient(stack.gateway_url) as client,
    ):
        sys.stdout.write(f"Measuring {WARM_UP} + {TURNS} turns …\n")
        samples_ms = [turn_ms(client) for _ in range(WARM_UP + TURNS)][WARM_UP:]
    sys.stdout.write(report(samples_ms) + "\n")


if __name__ == "__main__":
    main()
