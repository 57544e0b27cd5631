"""Temporary directories for servers, which are removed even if the process that made them was killed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

_PREFIX: Final = "harness-testing-"
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the directory itself is made by mkdtemp
_ROOM_BYTES: Final = 2 * 1024**3
"""What must be free in memory: enough for several test processes' servers."""


@contextmanager
def server_directory(name: str, *, in_memory: bool = False) -> Generator[Path]:
    """Make a directory for as long as the context lasts, after removing those that dead processes left behind.

    Args:
        name: What the directory is for; becomes part of its name.
        in_memory: Whether it will hold very many files, and should be in memory if there is room: ext4 searches, for
            each file that it creates, through all files that were removed in the last minutes.
    """
    on_disk = Path(tempfile.gettempdir())
    for place in (_MEMORY, on_disk):
        _sweep(place)
    place = _MEMORY if in_memory and _has_room() else on_disk
    directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-{name}-", dir=place))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _has_room() -> bool:
    return os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES


def _sweep(place: Path) -> None:
    for left in place.glob(f"{_PREFIX}*"):
        owner = left.name.removeprefix(_PREFIX).split("-")[0]
        if not (owner.isdigit() and psutil.pid_exists(int(owner))):
            shutil.rmtree(left, ignore_errors=True)
