"""Programs that no wheel has: those of the machine, or Debian's, installed where that is allowed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

_PATH: Final = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


@cache
def debian_program(name: str, package: str) -> str:
    """The path of a program, installed with its package if it is missing.

    Raises:
        OSError: It is missing and could not be installed; the message says why.
    """
    with _alone():
        found = shutil.which(name, path=_PATH)
        if found is None:
            _install(package)
            found = shutil.which(name, path=_PATH)
    if found is None:
        raise OSError(f"{package} has no {name}")
    return found


@contextmanager
def _alone() -> Generator[None]:
    """A context for one test process at a time: while another installs a package, it is there but not set up yet."""
    with (Path(tempfile.gettempdir()) / f"debian-programs-{os.geteuid()}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install(package: str) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise OSError(f"{package} is not installed: `apt-get install {package}` as root")
    # Services that a package would start have no place beside a test's own.
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    subprocess.run(["apt-get", "update"], env=env, capture_output=True, check=False)
    command = ["apt-get", "install", "-y", "--no-install-recommends", package]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{package} could not be installed: {done.stderr.strip()}")
