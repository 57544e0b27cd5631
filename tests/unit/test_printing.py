"""What an application's code prints in a worker."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

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


@pytest.mark.parametrize(
    "taken",
    ["sys.stdout.close(); sys.stderr.close()", "sys.stdout = sys.stderr = None", "sys.stdout = sys.stderr = object()"],
)
def test_streams_that_an_application_takes_away_are_put_back(taken: str) -> None:
    """A worker needs them; what it prints later is in the log."""
    told = f"""
import sys
from harness_worker.entrypoints.cli.standard_streams import keeping_streams, print_to_stderr
print_to_stderr()
with keeping_streams():
    {taken}
print("said", flush=True)
print("told", file=sys.stderr)
"""
    run = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr.splitlines()) == (0, "", ["said", "told"])


def test_streams_of_an_applications_own_stay() -> None:
    """It may want to see what is printed."""
    told = """
import io, sys
from harness_worker.entrypoints.cli.standard_streams import keeping_streams, print_to_stderr
print_to_stderr()
with keeping_streams():
    sys.stdout = own = io.StringIO()
    sys.stderr = io.TextIOWrapper(sys.stderr.detach(), encoding="utf-8", line_buffering=True)
print("said")
print(own.getvalue().strip(), "by it", file=sys.stderr)
"""
    run = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "said by it\n")
