"""One child process of the stack: started, watched, and ended with everything it started itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from harness_worker.adapters.embedded.parent_death import guarded
from harness_worker.entrypoints.stack.home import Home
from harness_worker.entrypoints.stack.identity import ProcessIdentity
from harness_worker.entrypoints.stack.killing import kill_session
from harness_worker.entrypoints.stack.logs import LogWriter

CLI: Final = (sys.executable, "-m", "harness_worker.entrypoints.cli")
"""The command by which a process of the harness starts another one."""

_LOG_END_TIMEOUT_S = 1.0
_KILL_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """How to start a child.

    Args:
        role: Its name in logs and in the ready line.
        command: Program and arguments.
        environment: Its complete environment.
        descriptors: File descriptors that it inherits.
    """

    role: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    descriptors: tuple[int, ...] = field(default=())


class Child:
    """One child of the stack: its process, and after a restart the process that replaces it.

    Start it from the main thread: the kernel ends a child with the *thread* that started it.

    Args:
        spec: How to start it.
        home: Where its process is recorded.
        log: Where its output goes.
    """

    def __init__(self, spec: ChildSpec, home: Home, log: LogWriter) -> None:
        self.spec = spec
        self.started_at = 0.0
        self._home = home
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._session: int | None = None
        self._pump: threading.Thread | None = None
        self._tail: list[str] = []

    @property
    def role(self) -> str:
        """Its name."""
        return self.spec.role

    @property
    def pid(self) -> int:
        """The pid of its current process; 0 before the first one starts."""
        return self._process.pid if self._process else 0

    @property
    def ready_said(self) -> bool:
        """Whether the current process has reported that it is ready."""
        return self._home.ready_file(self.role).exists()

    def start(self) -> None:
        """Start a process in a session of its own, so that Ctrl-C reaches only the supervisor, which drains in order.

        Raises:
            OSError: What an earlier process left cannot be looked for, the system cannot start a process or a thread,
                or nothing can be written to the home.
        """
        self._bury()
        process = subprocess.Popen(  # noqa: S603 - our own commands
            guarded(self.spec.command),
            env=dict(self.spec.environment),
            pass_fds=self.spec.descriptors,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._process, self._session = process, process.pid
        self.started_at = time.monotonic()
        self._tail = []
        if process.stdout is not None:
            self._pump = self._log.pump(self.role, process.stdout, self._tail)
        self._write_down(process.pid)

    def exit_code(self) -> int | None:
        """The current process's exit code once it has ended; negative for a signal."""
        return self._process.poll() if self._process else 0

    def send(self, sig: signal.Signals) -> None:
        """Send a signal to the current process, if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(sig)

    def bury(self) -> None:
        """Kill what is left of a dead process's session, and remove the record of the process.

        If the system refuses, as it does while no file can be opened, this is left to the next start of the child or of
        a stack.
        """
        try:
            self._bury()
        except OSError as refused:
            self._log.line("up", f"what {self.role} started cannot be looked for yet ({refused.strerror})")

    def kill(self) -> None:
        """End it at once, with everything it started."""
        self.send(signal.SIGKILL)
        try:
            if self._process is not None:
                self._process.wait(_KILL_TIMEOUT_S)
        except subprocess.TimeoutExpired:  # it sleeps in the kernel, until a disk or a network answers
            self._log.line("up", f"{self.role} (pid {self.pid}) was killed, but the system has not ended it yet")
        self.bury()

    def last_words(self) -> str:
        """The latest lines of its log."""
        return "\n".join(self._tail)

    def _bury(self) -> None:
        if self._session is not None:
            kill_session(self._session)
            self._session = None  # its number may be somebody else's by the next time
        if self._pump is not None:
            self._pump.join(_LOG_END_TIMEOUT_S)
        self._home.pid_file(self.role).unlink(missing_ok=True)
        self._home.ready_file(self.role).unlink(missing_ok=True)

    def _write_down(self, pid: int) -> None:
        identity = ProcessIdentity.of(pid)
        document = {"pid": identity.pid, "start": identity.start, "supervisor": os.getpid()}
        self._home.write_private(self._home.pid_file(self.role), json.dumps(document))
