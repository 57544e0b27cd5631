"""What a running stack publishes about itself, and the file that it publishes it in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness_worker.entrypoints.stack.home import Home
from harness_worker.entrypoints.stack.identity import ProcessIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInfo:
    """One process: ``role`` is redis, gateway, coordinator, flower or tools, whose pid is that of the pool's parent."""

    role: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StackInfo:
    """A running stack.

    Args:
        gateway_url: The gateway's URL.
        redis_url: Usable as ``HARNESS_REDIS_URL``; may hold a password.
        database_url: Usable as ``HARNESS_DATABASE_URL``; may hold a password.
        pid: The process that supervises the others.
        home: The absolute path of its data.
        processes: The other processes.
        broker_url: Usable as ``HARNESS_BROKER_URL``, if its broker is not that Redis; may hold a password.
        flower_url: Flower's URL, if Flower was requested; contains user and password.
        only_for: The command that started the stack for itself, and that will end it.
        app: The import string of the app that it serves; ``None`` if an earlier version started the stack.
    """

    gateway_url: str
    redis_url: str
    database_url: str
    pid: int
    home: Path
    processes: tuple[ProcessInfo, ...]
    broker_url: str | None = None
    flower_url: str | None = None
    only_for: str | None = None
    app: str | None = None

    def ready_line(self) -> str:
        """The one line of ``harness up --json``."""
        return json.dumps(
            {
                "gateway": self.gateway_url,
                "pid": self.pid,
                "redis": self.redis_url,
                "database": self.database_url,
                "home": str(self.home),
                **({"app": self.app} if self.app else {}),
                **({"broker": self.broker_url} if self.broker_url else {}),
                **({"flower": self.flower_url} if self.flower_url else {}),
                **({"only_for": self.only_for} if self.only_for else {}),
                "processes": [asdict(process) for process in self.processes],
            }
        )


def from_ready_line(line: str) -> StackInfo:
    """The stack that wrote this line.

    Raises:
        ValueError: It is not a ready line.
    """
    try:
        return _from_document(json.loads(line))
    except (KeyError, TypeError) as wrong:
        raise ValueError(f"no ready line: {line!r}") from wrong


def publish(home: Home, info: StackInfo) -> None:
    """Let others find this stack by its home."""
    identity = ProcessIdentity.of(info.pid)
    home.write_private(home.stack_file, json.dumps({"start": identity.start, "stack": info.ready_line()}))


def running_stack(home: Path) -> StackInfo | None:
    """The stack that runs in ``home``, if there is one."""
    try:
        document = json.loads(Home(home).stack_file.read_text())
        info = from_ready_line(document["stack"])
        identity = ProcessIdentity(pid=info.pid, start=document["start"])
    except (OSError, ValueError, KeyError):
        return None
    return info if identity.is_alive() else None


def _from_document(document: Mapping[str, Any]) -> StackInfo:
    return StackInfo(
        gateway_url=document["gateway"],
        redis_url=document["redis"],
        database_url=document["database"],
        pid=document["pid"],
        home=Path(document["home"]),
        processes=tuple(ProcessInfo(role=entry["role"], pid=entry["pid"]) for entry in document["processes"]),
        broker_url=document.get("broker"),
        flower_url=document.get("flower"),
        only_for=document.get("only_for"),
        app=document.get("app"),
    )
