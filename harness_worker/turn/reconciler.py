"""Looking for turns that somebody should have looked at (docs/architecture.md, "Who decides")."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from harness_worker.errors import HarnessError
from harness_worker.ports import Dispatcher, OverdueTurn, TurnStore
from harness_worker.threads.rounds import Rounds

log = logging.getLogger(__name__)

BATCH = 100
BACKOFF_S = 5.0


class Reconciler(Rounds):
    """Publishes ``advance`` for overdue turns, from one thread of every coordinator process.

    Args:
        store: Where ``wake_at`` is.
        dispatcher: Sends the wake-ups.
        every_s: Seconds between two looks.
        besides: What else is to be done after each look, in order; soon over, nearly always at once.
    """

    def __init__(
        self, store: TurnStore, dispatcher: Dispatcher, *, every_s: float, besides: Sequence[Callable[[], None]] = ()
    ) -> None:
        super().__init__("reconciler", every_s)
        self._store = store
        self._dispatcher = dispatcher
        self._besides = besides
        self._is_heard = True

    def _round(self) -> None:
        try:
            self.look()
        except HarnessError as error:  # what else there is to do needs the same database
            log.warning("could not look for overdue turns: %s", error)
            return
        for each in self._besides:
            _tried(each)

    def look(self) -> int:
        """Wake what is overdue once; returns how many turns that were.

        After the first that cannot be sent no more are tried: they stay overdue, for other coordinators and for the
        figures, and the next round tries one alone.
        """
        overdue = self._store.overdue(BATCH if self._is_heard else 1, BACKOFF_S)
        for position, turn in enumerate(overdue):
            self._is_heard = self._sent(turn)
            if not self._is_heard:
                self._store.give_back(overdue[position:])
                return position
        return len(overdue)

    def _sent(self, turn: OverdueTurn) -> bool:
        try:
            return self._dispatcher.advance(turn.id, turn.priority, begins=turn.is_queued)
        except Exception:  # a bug: the turns after this one would wait for the next round
            log.exception("wake-up of turn %s not sent", turn.id)
            return True


def _tried(work: Callable[[], None]) -> None:
    try:
        work()
    except HarnessError as error:
        log.warning("a part of the reconciler's round is left to the next one: %s", error)
    except Exception:  # a bug: what comes after it would never be done
        log.exception("a part of the reconciler's round failed")
