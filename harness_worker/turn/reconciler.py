"""Looking for turns that are overdue for a look (docs/architecture.md, "Who decides")."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from harness_worker.errors import SYSTEM_ERRORS, HarnessError
from harness_worker.ports import Dispatcher, OverdueTurn, TurnStore
from harness_worker.threads.rounds import Rounds

log = logging.getLogger(__name__)

BATCH = 100
BACKOFF_S = 5.0


class Reconciler(Rounds):
    """Sends wake-ups for overdue turns, from one thread of every coordinator process.

    Args:
        store: The journal, which has each turn's ``wake_at``.
        dispatcher: Sends the wake-ups.
        every_s: Seconds between two looks.
        besides: What else to do after each look, in order; each must be short, and is nearly always immediate.
    """

    def __init__(
        self, store: TurnStore, dispatcher: Dispatcher, *, every_s: float, besides: Sequence[Callable[[], None]] = ()
    ) -> None:
        super().__init__("reconciler", every_s)
        self._store = store
        self._dispatcher = dispatcher
        self._besides = besides
        self._can_send = True

    def _round(self) -> None:
        try:
            self.look()
        except HarnessError as error:  # the rest needs the same database
            log.warning("could not look for overdue turns: %s", error)
            return
        for each in self._besides:
            _do_or_log(each)

    def look(self) -> int:
        """Wake the overdue turns once, and return how many were woken.

        After the first wake-up that cannot be sent, no more are tried: the turns stay overdue, for other coordinators
        and for the metrics, and the next round tries only one.
        """
        overdue = self._store.overdue(BATCH if self._can_send else 1, BACKOFF_S)
        for position, turn in enumerate(overdue):
            self._can_send = self._sent(turn)
            if not self._can_send:
                self._store.give_back(overdue[position:])
                return position
        return len(overdue)

    def _sent(self, turn: OverdueTurn) -> bool:
        try:
            return self._dispatcher.advance(turn.id, turn.priority, begins=turn.is_queued)
        except SYSTEM_ERRORS as error:
            log.warning("wake-up of turn %s not sent: %r", turn.id, error)
            return False
        except Exception:  # a bug, which must not make the other turns wait for the next round
            log.exception("wake-up of turn %s not sent", turn.id)
            return True


def _do_or_log(work: Callable[[], None]) -> None:
    try:
        work()
    except (HarnessError, *SYSTEM_ERRORS) as error:
        log.warning("a part of the reconciler's round is left to the next one: %r", error)
    except Exception:  # a bug, which must not keep the parts after it from ever being done
        log.exception("a part of the reconciler's round failed")
