"""The same engine without a broker: a turn, and the turns that it asks for, run on threads of this process.

It is for notebooks and tests. A tool that exceeds its time cannot be killed here: its thread is left alone, and its
result is dropped.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from harness_worker.core.approvals import Answer
from harness_worker.core.children import open_delegated
from harness_worker.core.records import Call, Turn
from harness_worker.errors import ConfigError
from harness_worker.ports import Clock
from harness_worker.turn.answering import Approver, answer_all
from harness_worker.turn.coordinator import Coordinator
from harness_worker.turn.results import RequiredAction
from harness_worker.turn.retries import look_retries
from harness_worker.turn.running.call_runner import CallRunner
from harness_worker.turn.running.job import Job
from harness_worker.wire import child_turn_id

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""The longest time without a look at the turn, in seconds."""

PAST_DEADLINE_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnderWay:
    """A call under way on a thread, and when its time is over, by the monotonic clock."""

    job: Job
    until_s: float


class InlineDispatcher:
    """Implements ``ports.Dispatcher`` for one turn and those that it asks for, which have threads of their own.

    Args:
        clock: This process's monotonic time.
        approve: Asked about each call that needs approval.
        left_behind: Finds earlier turns of the session whose process is gone and whose time is over, and which nobody
            else would end.
    """

    _coordinator: Coordinator
    _runner: CallRunner

    def __init__(self, clock: Clock, approve: Approver, left_behind: Callable[[], Sequence[str]]) -> None:
        self._clock = clock
        self._patiently = look_retries(clock)
        self._approve = approve
        self._left_behind = left_behind
        self._wakes: defaultdict[str, queue.SimpleQueue[None]] = defaultdict(queue.SimpleQueue)
        self._drivers: dict[str, threading.Thread] = {}  # of turns that another turn asked for
        self._person = threading.Lock()
        self._untaken: defaultdict[str, dict[str, Answer]] = defaultdict(dict)
        self._ended_by: BaseException | None = None
        self._under_way: dict[str, _UnderWay] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)

    def drive(self, turn_id: str, coordinator: Coordinator, runner: CallRunner) -> None:
        """Drive the turn until it and those that it asked for have ended.

        All its visits have one name: if a claim was made but not answered, the next look takes it over, under a higher
        fence. Nobody else would free it until the turn's time is over.

        Raises:
            TransientError: The journal has not answered for a while.
            BaseException: What ``approve`` raised to end the program, such as ``SystemExit``, whichever turn asked.
        """
        owner = coordinator.new_owner()
        self._coordinator = replace(coordinator, new_owner=lambda: owner)
        self._runner = runner
        self._work(turn_id)
        while alive := [each for each in tuple(self._drivers.values()) if each.is_alive()]:
            alive[0].join()
        if self._ended_by is not None:
            raise self._ended_by

    def advance(self, turn_id: str, priority: str, *, begins: bool = False) -> bool:  # noqa: ARG002 - the port's
        """See ``ports.Dispatcher.advance``; wakes the turn's driver."""
        self._wakes_of(turn_id).put(None)
        return True

    def chord(self, turn: Turn, calls: Sequence[Call]) -> None:
        """See ``ports.Dispatcher.chord``."""
        left = itertools.count(len(calls) - 1, -1)

        def part(call: Call) -> None:
            self._run(turn, call)
            if next(left) == 0:
                self.advance(turn.id, turn.priority)

        for call in calls:
            self._spawn(lambda call=call: part(call))

    def chain(self, turn: Turn, calls: Sequence[Call]) -> None:
        """See ``ports.Dispatcher.chain``."""

        def links() -> None:
            for call in calls:  # after one that did not end well, the journal starts no later one
                self._run(turn, call)
            self.advance(turn.id, turn.priority)

        self._spawn(links)

    def judge(self, turn_id: str, judge: str) -> None:
        """See ``ports.Dispatcher.judge``; does nothing, because scores are computed here when they are asked for."""

    def stop(self, turn_id: str) -> None:
        """See ``ports.Dispatcher.stop``; does nothing: a thread cannot be stopped, and late results are dropped."""

    def _work(self, turn_id: str) -> None:
        what = f"looking at turn {turn_id}"
        self._patiently(partial(self._coordinator.advance, turn_id), what)
        while not self._patiently(partial(self._is_over, turn_id), what):
            self._patiently(partial(self._look, turn_id), what)

    def _look(self, turn_id: str) -> None:
        if not self._ask(turn_id):
            self._wait(turn_id)
        self._beat()
        for waited_for in self._left_behind():
            self._coordinator.advance(waited_for)
        self._coordinator.advance(turn_id)

    def _ask(self, turn_id: str) -> bool:
        """Ask about every waiting call of the turn, and return whether there were any.

        After an answer that ends the program, such as ``sys.exit()``, later looks ask nobody. The caller's thread
        raises it at its next look, or at the end, because on another thread it would end no more than that thread.
        """
        if self._ended_by is None:
            try:
                return answer_all(self._coordinator.store, turn_id, self._approved, self._untaken[turn_id])
            except Exception:
                raise
            except BaseException as error:  # noqa: BLE001 - raised below, on the caller's thread
                self._ended_by = error
        if turn_id not in self._drivers:
            raise self._ended_by
        return False

    def _work_or_log(self, turn_id: str) -> None:
        try:
            self._work(turn_id)
        except Exception:  # the thread's boundary: the turn that asked for this one starts another thread
            log.exception("turn %s, which another turn asked for, is left as it is for now", turn_id)

    def _have_driven(self, turn_id: str) -> None:
        """Start a thread that drives a turn that another turn asked for, unless there is one.

        If the system refuses it, the next look tries again.
        """
        with self._lock:
            driver = self._drivers.get(turn_id)
            if driver is None or not driver.is_alive():
                driver = threading.Thread(target=self._work_or_log, args=(turn_id,), name="inline-turn", daemon=True)
                self._drivers[turn_id] = driver
                try:
                    driver.start()
                except RuntimeError as error:
                    log.warning("turn %s, which another turn asked for, is not driven yet: %s", turn_id, error)

    def _wakes_of(self, turn_id: str) -> queue.SimpleQueue[None]:
        with self._lock:
            return self._wakes[turn_id]

    def _approved(self, action: RequiredAction) -> bool | str | Mapping[str, Any]:
        """The person's answer; only one question is asked at a time, across all turns."""
        with self._person:
            return self._approve(action)

    def _spawn(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name="inline-tool", daemon=True).start()

    def _run(self, turn: Turn, call: Call) -> None:
        job = Job(
            turn_id=turn.id,
            call_id=call.call_id,
            attempt=call.attempt,
            tool=call.tool,
            is_read=call.is_read,
            runner=f"inline/{next(self._numbers)}",
        )
        until_s = self._clock.monotonic() + call.timeout_s + PAST_DEADLINE_S
        with self._lock:
            self._under_way[job.runner] = _UnderWay(job=job, until_s=until_s)
        try:
            self._runner.run(job)
        except ConfigError as error:  # the journal is closed
            log.warning("%s is left as it is: %s", job, error)
        finally:
            with self._lock:
                self._under_way.pop(job.runner, None)

    def _wait(self, turn_id: str) -> None:
        """Wait until the turn is woken or a call's time is over, but no longer than ``LOOK_S``."""
        now = self._clock.monotonic()
        with self._lock:
            ends = [each.until_s - now for each in self._under_way.values()]
        wait_s = min([LOOK_S, *(end for end in ends if end > 0)])
        with suppress(queue.Empty):
            self._wakes_of(turn_id).get(timeout=wait_s)

    def _beat(self) -> None:
        """Send heartbeats for reads, and for writes past their time; before, a write's lease of a day needs none."""
        now = self._clock.monotonic()
        with self._lock:
            under_way = tuple(self._under_way.values())
        self._coordinator.gate.beat([each.job for each in under_way if each.job.is_read])
        late = [each.job for each in under_way if not each.job.is_read and now >= each.until_s]
        self._coordinator.store.beat_calls(late, self._coordinator.timing.lease_ttl_s)

    def _is_over(self, turn_id: str) -> bool:
        """Whether the turn has ended; if not, make sure that each turn that it asked for has a driver."""
        loaded = self._coordinator.store.load(turn_id)
        if loaded is None or loaded.turn.status.is_final:
            return True
        for call in open_delegated(loaded.calls):
            self._have_driven(child_turn_id(turn_id, call.call_id))
        return False
