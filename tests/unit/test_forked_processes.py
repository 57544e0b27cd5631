"""Tools that fork: the child ends where the body does, whichever way, and the parent's result is the call's."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from harness_worker.core.registration.effects import Effect
from harness_worker.errors import ToolTransientError
from harness_worker.turn.running.job import Canvas
from tests.unit.engine_kit import Engine

CAME_BACK = 77
"""What a child exits with that came back from the harness."""

CHILDREN: list[int] = []
"""The pids of those that a test forked, and nobody has waited for."""


@pytest.fixture
def engine() -> Engine:
    """A turn with a write that may be repeated, one that may not, and a read."""
    return Engine(write=Effect.LOCAL_WRITE, safe_write=Effect.LOCAL_WRITE, look=Effect.READ_ONLY)


def _raises(error: BaseException) -> Callable[[], NoReturn]:
    def way() -> NoReturn:
        raise error

    return way


def _closed(stream: str) -> Callable[[], NoReturn]:
    def way() -> NoReturn:
        getattr(sys, stream).close()
        raise ValueError("child")

    return way


def _fork() -> int:
    CHILDREN.append(os.fork())
    return CHILDREN[-1]


def _served(engine: Engine) -> int:
    """Serve the call; with what its child exited."""
    mine = os.getpid()
    try:
        assert engine.run() is Canvas.CONTINUES
    finally:
        if os.getpid() != mine:
            os._exit(CAME_BACK)
    return os.waitstatus_to_exitcode(os.waitpid(CHILDREN.pop(), 0)[1])


@pytest.mark.parametrize("tool", ["write", "safe_write", "look"])
@pytest.mark.parametrize(
    ("way", "code"),
    [
        (lambda: "child", 0),
        (sys.exit, 0),
        (_raises(SystemExit(0)), 0),
        (_raises(SystemExit(3)), 3),
        (_raises(SystemExit(1 << 40)), 0),
        (_raises(SystemExit("words")), 1),
        (_raises(ValueError("child")), 1),
        (_raises(ToolTransientError("child")), 1),
        (_raises(KeyboardInterrupt()), 1),
        (_closed("stdout"), 1),
        (_closed("stderr"), 1),
    ],
)
def test_child_of_a_tool_ends_with_its_body(engine: Engine, tool: str, way: Callable[[], object], code: int) -> None:
    """As a script would; it hands in nothing, tries nothing again, and the parent's result stands."""
    engine.dispatched(tool)
    engine.bodies[tool] = lambda: way() if _fork() == 0 else "parent"
    assert _served(engine) == code
    engine.advance()
    assert engine.contents == ["parent"]


class Forking(list[int]):
    """Forks when it is read."""

    def __iter__(self) -> Iterator[int]:
        """Read the parent's."""
        return iter([0 if _fork() == 0 else 1])


def test_child_of_a_result_that_is_read_ends_with_the_reading(engine: Engine) -> None:
    """What a tool returns may be the author's code too."""
    engine.dispatched("write")
    engine.bodies["write"] = lambda: Forking([0])
    assert _served(engine) == 0
    assert engine.contents == ["[1]"]


def _speaks() -> NoReturn:
    sys.stdout = os.fdopen(os.dup(1), "w")  # which keeps what is said, as that of a worker does
    print("said")  # noqa: T201 - what it is for
    sys.exit("no such order")


def test_child_says_what_it_has_to_say(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    """What it has printed, and why it exits."""
    engine.dispatched("write")
    engine.bodies["write"] = lambda: _speaks() if _fork() == 0 else "parent"
    _served(engine)
    assert capfd.readouterr() == ("said\n", "no such order\n")


def test_child_says_what_it_raised(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    """Where Python would say it."""
    engine.dispatched("write")
    engine.bodies["write"] = lambda: _raises(ValueError("no such order"))() if _fork() == 0 else "parent"
    _served(engine)
    assert capfd.readouterr().err.endswith("ValueError: no such order\n")
