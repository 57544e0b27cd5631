"""Ends processes that an earlier, killed stack has left."""

from __future__ import annotations

import json
from pathlib import Path

import psutil

from harness_worker.entrypoints.stack.home import Home
from harness_worker.entrypoints.stack.identity import ProcessIdentity
from harness_worker.entrypoints.stack.killing import kill, marked_processes
from harness_worker.entrypoints.stack.logs import LogWriter


def end_leftovers(home: Home, log: LogWriter) -> None:
    """Kill the processes of an earlier stack on ``home``; the caller must hold its lock.

    Servers may overwrite their environment to set their title, so they are found by their recorded pid and start time;
    the processes that they started are found by the mark that they inherited.
    """
    files = list(home.run.glob("*.pid"))
    written = (_written(file) for file in files)
    found = {process.pid: process for process in [*marked_processes(str(home.path)), *filter(None, written)]}
    if found:
        log.line("up", f"ending what an earlier run left: pids {', '.join(map(str, sorted(found)))}")
    kill(found.values())
    for file in [*files, *home.run.glob("*.ready"), home.stack_file]:
        file.unlink(missing_ok=True)


def _written(file: Path) -> psutil.Process | None:
    try:
        document = json.loads(file.read_text())
        return ProcessIdentity(pid=int(document["pid"]), start=str(document["start"])).process()
    except (OSError, ValueError, KeyError, TypeError):
        return None
