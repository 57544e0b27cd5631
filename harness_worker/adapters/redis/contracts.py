"""The signatures of the Lua scripts of the gate and of locks: their parameters and their replies.

``key`` is the turn's hash, or the lock's. Deadlines are given as remaining milliseconds; inside the scripts they become
times of Redis TIME, the only clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness_worker.adapters.redis._lua import lua
from harness_worker.ports import GatePass, ReadAttempt, RunningCall


@lua("raise")
def raise_fence(key: str, fence: int) -> int:
    """1 if ``fence`` is now the highest, 0 if a higher one is known."""
    ...


@lua("open")
def open_gate(key: str, fence: int, passes: Sequence[GatePass]) -> int:
    """1 if every pass was registered, 0 if none was."""
    ...


@lua("close")
def close_gate(key: str, fence: int, is_over: bool) -> int:
    """Always 1."""
    ...


@lua("settle")
def settle(key: str, fence: int, lease_ttl_ms: int, close: bool, reads: Sequence[ReadAttempt]) -> list[list[str]]:
    """For each read: state (empty: completed), completion, started, finished, runner, lease; empty texts if absent.

    The lease is what is left of it, in milliseconds.
    """
    ...


@lua("admit")
def admit(key: str, call_id: str, attempt: int, cap_ms: int, lease_ttl_ms: int, runner: str) -> tuple[str, int, str]:
    """The answer, the remaining milliseconds, and the ticket."""
    ...


@lua("admits_write")
def admits_write(key: str, call_id: str, attempt: int) -> int:
    """1 if the write may start, else 0."""
    ...


@lua("complete")
def complete(key: str, call_id: str, attempt: int, runner: str, completion: str) -> int:
    """1 if this completion was accepted, else 0."""
    ...


@lua("beat")
def beat(key: str, runs: Sequence[RunningCall]) -> int:
    """Always 1."""
    ...


@lua("lose")
def lose(key: str, call_id: str, attempt: int, runner: str) -> int:
    """Always 1."""
    ...


@lua("goes_on")
def goes_on(key: str, call_id: str, attempt: int, runner: str) -> int:
    """1 if the admitted read may still go on, else 0."""
    ...


@lua("take_lock", preamble="_lock")
def take_lock(key: str, mine: str, ttl_ms: int, keep_ms: int) -> int:
    """The fencing number, or 0 while another call holds the lock; ``mine`` is the key of the call that asks."""
    ...


@lua("free_lock", preamble="_lock")
def free_lock(key: str, mine: str) -> int:
    """1 if it was still held, else 0."""
    ...
