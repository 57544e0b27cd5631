"""Tools that misbehave."""

from __future__ import annotations

import math
import multiprocessing
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from harness_worker import Effect, RunContext, ToolError
from harness_worker.errors import ToolTransientError
from tests.apps.e2e import journal
from tests.apps.e2e.work import registry


@registry.tool(effect=Effect.READ_ONLY, timeout_s=1)
def nap(s: float, ctx: RunContext) -> str:
    """Sleep past the deadline."""
    journal.entered(ctx)
    time.sleep(s)
    return "slept"


@registry.tool(effect=Effect.LOCAL_WRITE, timeout_s=2)
def nap_write(s: float, ctx: RunContext) -> str:
    """Write, then sleep past the deadline."""
    journal.entered(ctx)
    journal.did(ctx)
    time.sleep(s)
    return "slept"


@registry.tool(effect=Effect.READ_ONLY, timeout_s=1)
def swallow(ctx: RunContext) -> str:
    """Swallow the soft limit and answer a little late."""
    journal.entered(ctx)
    try:
        time.sleep(5)
    except BaseException:  # noqa: BLE001 - that is the fault
        time.sleep(0.2)
    return "swallowed"


@registry.tool(effect=Effect.READ_ONLY, timeout_s=1)
def swallow_all(ctx: RunContext) -> str:
    """Swallow every soft limit."""
    journal.entered(ctx)
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            time.sleep(20)
        except BaseException:  # noqa: BLE001, S112 - that is the fault
            continue
    return "never stopped"


@registry.tool(effect=Effect.LOCAL_WRITE, timeout_s=2)
def swallow_write(ctx: RunContext) -> str:
    """Write, swallow the soft limit and answer a little late."""
    journal.entered(ctx)
    journal.did(ctx)
    try:
        time.sleep(5)
    except BaseException:  # noqa: BLE001 - that is the fault
        time.sleep(0.2)
    return "swallowed"


def _cycle() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


class Rows(list[int]):
    """Rows of a cursor that is closed by the time they are read."""

    def __iter__(self) -> NoReturn:
        """Fail."""
        raise ConnectionError("the cursor is closed")


_WEIRD: dict[str, Callable[[], object]] = {
    "object": lambda: {"a": [1, object()]},
    "nan": lambda: math.nan,
    "infinity": lambda: [-math.inf],
    "bytes": lambda: b"\xff\xfe",
    "cycle": _cycle,
    "generator": lambda: (n for n in range(3)),
    "lock": threading.Lock,
    "class": lambda: dict,
    "function": lambda: _cycle,
    "rows": lambda: {"rows": Rows([1])},
}


@registry.tool(effect=Effect.READ_ONLY)
def weird(kind: str, ctx: RunContext) -> object:
    """Return what JSON cannot hold."""
    journal.entered(ctx)
    return _WEIRD[kind]()


class Mute(Exception):  # noqa: N818 - the suite's own
    """Cannot say what is wrong."""

    def __str__(self) -> str:
        """Fail."""
        raise RuntimeError("mute")


def _deep() -> int:
    return 1 + _deep()


def _raise(error: BaseException) -> object:
    raise error


def _missing_file() -> object:
    with open(os.path.join(os.path.dirname(__file__), "no-such-file")) as file:
        return file.read()


_ERRORS: dict[str, Callable[[], object]] = {
    "value": lambda: _raise(ValueError("no such order")),
    "path": _missing_file,
    "exit": lambda: _raise(SystemExit(3)),
    "exit_zero": lambda: _raise(SystemExit(0)),
    "interrupt": lambda: _raise(KeyboardInterrupt()),
    "generator_exit": lambda: _raise(GeneratorExit()),
    "recursion": _deep,
    "memory": lambda: _raise(MemoryError()),
    "long": lambda: _raise(ValueError("x" * 5_000)),
    "mute": lambda: _raise(Mute()),
    "group": lambda: _raise(ExceptionGroup("two", [ValueError("one"), TypeError("two")])),
    "tool_error": lambda: _raise(ToolError("the shop is closed")),
    "final": lambda: _raise(ToolError("never again", retryable=False)),
    "dict": lambda: {"error": "out of stock", "left": 0},
    "null_error": lambda: {"error": None, "left": 0},
    "string": lambda: "error: but only a string",
}


@registry.tool(effect=Effect.READ_ONLY)
def fail(how: str, ctx: RunContext) -> object:
    """Raise, or return an error."""
    journal.entered(ctx)
    return _ERRORS[how]()


@registry.tool(effect=Effect.LOCAL_WRITE)
def fail_write(how: str, ctx: RunContext) -> object:
    """Raise, or return an error, from a write."""
    journal.entered(ctx)
    return _ERRORS[how]()


@registry.tool(effect=Effect.READ_ONLY)
def blob(chars: int, ctx: RunContext) -> str:
    """Return that much text."""
    journal.entered(ctx)
    return "x" * chars


@registry.tool(effect=Effect.READ_ONLY)
def odd_text(ctx: RunContext) -> dict[str, str]:
    """Return text that databases and encoders do not take."""
    journal.entered(ctx)
    return {"a\x00b": "c\ud800d"}


def _kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(5)


@registry.tool(effect=Effect.READ_ONLY)
def die(ctx: RunContext) -> str:
    """Kill the process, each time."""
    journal.entered(ctx)
    _kill_self()
    return "survived"


@registry.tool(effect=Effect.READ_ONLY)
def die_once(ctx: RunContext) -> str:
    """Kill the process, the first time."""
    journal.entered(ctx)
    if ctx.attempt == 1:
        _kill_self()
    return f"attempt {ctx.attempt}"


@registry.tool(effect=Effect.LOCAL_WRITE)
def die_write(ctx: RunContext) -> str:
    """Write, then kill the process."""
    journal.entered(ctx)
    journal.did(ctx)
    _kill_self()
    return "survived"


@registry.tool(effect=Effect.LOCAL_WRITE, retry_safe=True)
def die_safe(ctx: RunContext) -> str:
    """Write in a way that may be repeated, then kill the process, each time."""
    journal.entered(ctx)
    journal.did_once(ctx)
    _kill_self()
    return "survived"


@registry.tool(effect=Effect.LOCAL_WRITE, retry_safe=True)
def die_safe_once(ctx: RunContext) -> str:
    """Write in a way that may be repeated, then kill the process, the first time."""
    journal.entered(ctx)
    journal.did_once(ctx)
    if ctx.attempt == 1:
        _kill_self()
    return f"attempt {ctx.attempt}"


@registry.tool(effect=Effect.LOCAL_WRITE, retry_safe=True, timeout_s=5)
def end_worker_once(ctx: RunContext) -> str:
    """Write in a way that may be repeated, then kill the whole worker, the first time."""
    journal.entered(ctx)
    journal.did_once(ctx)
    if ctx.attempt == 1:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(10)
    return f"attempt {ctx.attempt}"


@registry.tool(effect=Effect.READ_ONLY)
def leave(ctx: RunContext) -> str:
    """Leave the process as if all were well, each time."""
    journal.entered(ctx)
    os._exit(0)


@registry.tool(effect=Effect.LOCAL_WRITE)
def leave_write(ctx: RunContext) -> str:
    """Write, then leave the process as if all were well."""
    journal.entered(ctx)
    journal.did(ctx)
    os._exit(0)


@registry.tool(effect=Effect.READ_ONLY, timeout_s=4)
def spawn(ctx: RunContext, *, then_die: bool) -> str:
    """Start a process that sleeps, then sleep past the deadline or die."""
    started = subprocess.Popen(["sleep", "120"])
    journal.entered(ctx, started=started.pid)
    if then_die:
        _kill_self()
    time.sleep(10)
    return "slept"


@registry.tool(effect=Effect.READ_ONLY, timeout_s=4)
def fork(ctx: RunContext, *, then_die: bool) -> str:
    """Start processes of Python, then wait for them past the deadline or die."""
    with multiprocessing.Pool(1) as pool:
        journal.entered(ctx, started=pool.apply(os.getpid))
        if then_die:
            _kill_self()
        pool.apply(time.sleep, (10,))
    return "slept"


_CHILD: dict[str, Callable[[], object]] = {
    "exit": lambda: _raise(SystemExit(0)),
    "raise": lambda: _raise(ValueError("child")),
    "return": lambda: "child",
}


@registry.tool(effect=Effect.LOCAL_WRITE)
def split(how: str, ctx: RunContext) -> object:
    """Fork as a script does; the child leaves the body at once, this process a little later."""
    journal.entered(ctx)
    child = os.fork()
    if child == 0:
        return _CHILD[how]()
    time.sleep(1)
    return f"parent of {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}"


def _stumble(times: int, ctx: RunContext) -> str:
    journal.did_once(ctx)
    tries = journal.tries(ctx)
    if tries <= times:
        raise ToolTransientError("come back later")
    return f"try {tries}"


@registry.tool(effect=Effect.LOCAL_WRITE, retry_safe=True, timeout_s=6)
def stumble_safe(times: int, ctx: RunContext) -> str:
    """Fail for a passing reason, that many times."""
    return _stumble(times, ctx)


@registry.tool(effect=Effect.LOCAL_WRITE, retry_safe=True, timeout_s=40)
def stumble_twice(ctx: RunContext) -> str:
    """Fail for a passing reason twice, with time for as many pauses."""
    return _stumble(2, ctx)


@registry.tool(effect=Effect.LOCAL_WRITE)
def stumble_write(times: int, ctx: RunContext) -> str:
    """Fail for a passing reason, in a tool that may not be repeated."""
    return _stumble(times, ctx)


@registry.tool(effect=Effect.READ_ONLY)
def spoil(ctx: RunContext) -> int:
    """Forbid this process to write to files, for good, and return its id."""
    journal.entered(ctx)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
    return os.getpid()
