"""Programs that no wheel has: those of the machine, or Debian's, installed where that is allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from typing import Final

_PATH: Final = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


@cache
def debian_program(name: str, package: str) -> str:
    """The path of a program, installed with its package if it is missing.

    Raises:
        OSError: It is missing and could not be installed; the message says why.
    """
    found = shutil.which(name, path=_PATH)
    if found is None:
        _install(package)
        found = shutil.which(name, path=_PATH)
    if found is None:
        raise OSError(f"{package} has no {name}")
    return found


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
