"""What an application's code prints in a worker."""

from __future__ import annotations

import os
import subprocess
import sys

APPLICATION = """
import os, sys
from harness_worker.entrypoints.cli.standard_streams import print_to_stderr
print_to_stderr()
print("said", "by", "it")
os.write(1, b"written\\n")
print("told", file=sys.stderr)
print("\\udcff")
sys.exit(7)
"""


def test_what_is_printed_goes_to_stderr_in_order() -> None:
    """Where the log goes, line by line; what has no encoding is escaped."""
    run = subprocess.run([sys.executable, "-c", APPLICATION], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (7, "")
    assert run.stderr.splitlines() == ["said by it", "written", "told", "\\udcff"]


def test_what_is_printed_to_nobody_is_lost_without_an_error() -> None:
    """A tool does not fail because whoever read its worker's log has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    told = APPLICATION.replace('os.write(1, b"written\\n")', "")
    run = subprocess.run([sys.executable, "-c", told], stderr=writer, stdout=subprocess.PIPE, check=False)
    os.close(writer)
    assert (run.returncode, run.stdout) == (7, b"")
