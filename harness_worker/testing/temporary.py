"""Temporary directories of servers, that go away even when the process that made them was killed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psutil

_PREFIX = "harness-testing-"


@contextmanager
def server_directory(name: str) -> Generator[Path]:
    """A directory for as long as the context lasts; sweeps those of dead processes first.

    Args:
        name: What it is for; part of its name.
    """
    _sweep()
    directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-{name}-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _sweep() -> None:
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = left.name.removeprefix(_PREFIX).split("-")[0]
        if not (owner.isdigit() and psutil.pid_exists(int(owner))):
            shutil.rmtree(left, ignore_errors=True)
