"""Asks a sweep's cells over HTTP, each at most once, even if a process dies or the sweep is stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Event
from typing import Final

from harness_worker.adapters.clock import SystemClock
from harness_worker.client.client import GatewayClient, RequestRefused
from harness_worker.client.polling import poll
from harness_worker.errors import Stopped
from harness_worker.evaluation.cells import Cell
from harness_worker.evaluation.results import Found
from harness_worker.threads.crew import Watcher, work_through
from harness_worker.wire import JsonObject, TurnStatus, has_ended

NOT_TAKEN: Final = frozenset({413, 422})
"""Statuses by which the gateway refuses one cell's request; any other refusal ends the sweep."""

SCORES: Final = ("scores",)
"""Fetched with every look at a turn, so that an ended turn without judges need not be looked at again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How cells are asked.

    Args:
        timeout_s: How long to wait for a turn, and then for its judges, in seconds.
        goes_on: Whether the sweep may have been started before; then turns that it made are looked for first.
        include: What to fetch of each last turn besides its scores.
        on_waiting: Called once for each turn that waits for a person, on any thread.
    """

    timeout_s: float
    goes_on: bool
    include: tuple[str, ...]
    on_waiting: Callable[[JsonObject], None]


class CellRunner:
    """Asks cells; safe to share between threads.

    A cell's turns have a session of their own and idempotency keys, both derived from everything that is asked. So a
    turn that was made is found again by its key or, after the day that keys are kept, by its session.

    Args:
        client: The gateway.
        asking: How cells are asked.
    """

    def __init__(self, client: GatewayClient, asking: Asking) -> None:
        self._stop = Event()
        self._clock = _StoppableClock(self._stop)
        self._gateway = client.with_patience(busy_s=asking.timeout_s, clock=self._clock)
        self._asking = asking

    def run(self, cell: Cell) -> Found:
        """Ask a cell, or continue with what was asked before, and wait for the end.

        Raises:
            Stopped: It was asked to stop.
            StackUnreachable: Nothing has answered for half a minute.
            RequestRefused: The gateway refuses for a reason that is not this cell's, or is busy for too long.
        """
        turns: list[JsonObject] = []
        made = self._made_before(cell)
        for number in range(len(cell.case.input)):
            self._clock.wait(0.0)
            try:
                turn_id = made[number] if number < len(made) else self._made(cell, number)
            except RequestRefused as refused:
                if refused.status not in NOT_TAKEN:
                    raise
                return Found(turns=tuple(turns), refused=refused.detail)
            turns.append(self._ended(turn_id))
            if turns[-1]["status"] != TurnStatus.COMPLETED:
                break
        return Found(turns=(*turns[:-1], self._judged(turns[-1])))

    def stop(self) -> None:
        """Ask nothing more, and stop waiting; turns that were made go on."""
        self._stop.set()

    def _made_before(self, cell: Cell) -> list[str]:
        if not self._asking.goes_on:
            return []
        newest_first = self._gateway.turns(session_id=cell.session_id)
        return [turn["id"] for turn in reversed(list(newest_first))]

    def _made(self, cell: Cell, number: int) -> str:
        return self._gateway.create_turn(**cell.body(number), idempotency_key=cell.key(number))["id"]

    def _ended(self, turn_id: str) -> JsonObject:
        told = False

        def look() -> JsonObject:
            nonlocal told
            turn = self._gateway.turn(turn_id, *SCORES)
            if (turn["status"] == TurnStatus.REQUIRES_ACTION or turn.get("subagent_actions")) and not told:
                self._asking.on_waiting(turn)
                told = True
            return turn

        return poll(look, has_ended, self._asking.timeout_s, self._clock)

    def _judged(self, turn: JsonObject) -> JsonObject:
        """The turn with its scores, once all its judges have scored; it is known at its end which these are."""
        if not has_ended(turn) or (_all_have_spoken(turn) and not self._asking.include):
            return turn
        parts = (*self._asking.include, *SCORES)
        return poll(
            lambda: self._gateway.turn(turn["id"], *parts), _all_have_spoken, self._asking.timeout_s, self._clock
        )


def run_cells(runner: CellRunner, cells: Iterable[Cell], watcher: Watcher[Cell, Found], concurrency: int) -> None:
    """Ask cells, several at once; the first error that is not a cell's own, or a Ctrl-C, ends the sweep at once.

    Args:
        runner: Asks one cell.
        cells: The cells.
        watcher: Notified of each result as it comes.
        concurrency: How many cells are asked at once.
    """
    try:
        work_through(list(cells), runner.run, watcher, concurrency=concurrency, name="eval")
    except BaseException:
        runner.stop()
        raise


class _StoppableClock(SystemClock):
    """A clock whose waits end when it is asked to stop.

    Args:
        stop: Set to stop it.
    """

    def __init__(self, stop: Event) -> None:
        self._stop = stop

    def wait(self, seconds: float) -> None:
        """Return after ``seconds``.

        Raises:
            Stopped: It was asked to.
        """
        if self._stop.wait(seconds):
            raise Stopped


def _all_have_spoken(turn: JsonObject) -> bool:
    return all(score["at"] for score in turn["scores"])
