"""Workers' names: the same after a restart, different at the same time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from harness_worker.entrypoints.worker.name import WorkerName, role_of

HOST = socket.gethostname()
HOLDER = """
import os, sys
from harness_worker.entrypoints.worker.name import WorkerName
name = WorkerName("tools", sys.argv[1])
if os.fork() == 0:
    name.disown()
    print(name.full, flush=True)
    sys.stdin.read()  # a child that outlives its parent, for a while
    os._exit(0)
os.wait()
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names that stay need Linux' abstract sockets")


def test_name_is_the_roles_and_numbered_where_taken() -> None:
    """Two workers of a role have different names, those of another role or broker are not in their way."""
    broker = f"redis://{os.getpid()}/1"
    held = [WorkerName("tools", broker), WorkerName("tools", broker)]
    others = [WorkerName("coordinator", broker), WorkerName("tools", broker + "2")]
    assert [name.full for name in held] == [f"tools@{HOST}", f"tools-2@{HOST}"]
    assert [name.full for name in others] == [f"coordinator@{HOST}", f"tools@{HOST}"]
    held[0].disown()
    again = WorkerName("tools", broker)
    assert again.full == f"tools@{HOST}"
    for name in (*held, *others, again):
        name.disown()


def test_name_of_a_killed_worker_is_free_though_a_child_is_left() -> None:
    """Who is started in its place is called the same, at once."""
    broker = f"redis://{os.getpid()}/2"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, broker], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == f"tools@{HOST}"
        taken = WorkerName("tools", broker)
        assert taken.full == f"tools-2@{HOST}"
        holder.kill()
        holder.wait()
        free = WorkerName("tools", broker)
        assert free.full == f"tools@{HOST}"
        for name in (taken, free):
            name.disown()
        holder.communicate()  # the child ends with its input


@pytest.mark.parametrize("name", ["tools@h", "tools-2@h", "tools-4711@h-1"])
def test_role_is_told_by_the_name(name: str) -> None:
    """A number in the name changes nothing."""
    assert role_of(name) == "tools"
