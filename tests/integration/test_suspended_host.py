"""A host that is suspended, like a laptop: simulated by a time namespace, whose clock the kernel moves ahead."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLEPT_S = 3_600
SCRIPT = """
import time
from harness_worker.adapters.clock import SystemClock
print(SystemClock().monotonic() - time.monotonic())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux'")
def test_clock_goes_on_while_the_host_sleeps():
    """A call that was admitted before the suspension does not start after it."""
    asleep = ["unshare", "--user", "--map-root-user", "--time", "--boottime", str(SLEPT_S)]
    if subprocess.run([*asleep, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no time namespaces here")
    ran = subprocess.run([*asleep, sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    slept_s = float(ran.stdout) - suspended_s()
    assert SLEPT_S - 1 < slept_s < SLEPT_S + 1


def suspended_s() -> float:
    """How long this host itself has been suspended, in seconds."""
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    return float(ran.stdout)
