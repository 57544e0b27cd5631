"""Ports whose every operation takes time, may fail, and lets others run before and after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness_worker.errors import TransientError
from tests.unit.simulation.faults import Fault, Faults
from tests.unit.simulation.kernel import Kernel

ERROR_CHANCE = 0.02


class Outside:
    """Any port, seen through a network.

    Args:
        target: The thing itself, asked for at each operation: it may have been replaced.
        error: Which fault makes it not answer. It may have done what was asked nevertheless.
        kernel: Virtual time.
        faults: What goes wrong.
        pause: Where the caller may be killed or stopped.
    """

    def __init__(
        self, target: Callable[[], object], error: Fault, kernel: Kernel, faults: Faults, pause: Callable[[], None]
    ) -> None:
        self._target = target
        self._error = error
        self._kernel = kernel
        self._faults = faults
        self._pause = pause

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def asked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any operation
            self._pause()
            self._maybe_fail("before")
            answer = getattr(self._target(), name)(*args, **kwargs)
            self._maybe_fail("after")
            self._pause()
            return answer

        return asked

    def _maybe_fail(self, when: str) -> None:
        if self._faults.strikes(self._error, ERROR_CHANCE, self._kernel.random, self._kernel.now):
            raise TransientError(f"no answer ({when})")
