"""A host that is suspended, like a laptop: simulated by a time namespace, whose clock the kernel moves ahead."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLEPT_S = 3_600
SCRIPT = """
import time
from harness_worker.adapters.clock import SystemClock
before, here, after = time.monotonic(), SystemClock().monotonic(), time.monotonic()
print(here - after, here - before)
"""
"""Prints how far the clock is ahead, at least and at most: this process may stand still between two looks."""


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux'")
def test_clock_goes_on_while_the_host_sleeps():
    """A call that was admitted before the suspension does not start after it."""
    asleep = ["unshare", "--user", "--map-root-user", "--time", "--boottime", str(SLEPT_S)]
    if subprocess.run([*asleep, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no time namespaces here")
    ran = subprocess.run([*asleep, sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    least_s, most_s = map(float, ran.stdout.split())
    awake = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    least_before_s, most_before_s = map(float, awake.stdout.split())  # this host itself may have been suspended
    assert least_s - most_before_s < SLEPT_S + 1
    assert most_s - least_before_s > SLEPT_S - 1
