"""Committing what a visit decides, which is possible only as long as the visit holds its turn."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from harness_worker.core.decisions import Decision, Snapshot, T
from harness_worker.core.progress import Finished
from harness_worker.core.reply_commit import give_up
from harness_worker.core.visits import StopCause, Visit, fenced
from harness_worker.core.warnings import with_warnings
from harness_worker.errors import TransientError
from harness_worker.ports import Gate, TurnStore
from harness_worker.turn.finalizer import Finalizer
from harness_worker.wire import StopReason

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """Commits what a visit decides.

    Args:
        store: The journal.
        gate: The arbiter of reads.
        finalizer: Ends turns.
        visit: The visit.
    """

    store: TurnStore
    gate: Gate
    finalizer: Finalizer
    visit: Visit

    def commit(self, rule: Callable[[Snapshot], Decision[T]]) -> T | None:
        """Commit what the rule decides; ``None`` if another visit drives the turn now, or it has ended."""

        def decided(snapshot: Snapshot) -> Decision[T]:
            return with_warnings(rule(snapshot), now=snapshot.now)

        sealed = self.finalizer.sealing(fenced(self.visit, decided))
        return self.store.transact(self.visit.turn.id, sealed, follows=True)

    def give_up(self, reason: StopReason, message: str, cause: StopCause | None = None) -> Finished | None:
        """End the turn without a reply from the model."""
        self.close_idle_gate()
        return self.commit(partial(give_up, reason=reason, message=message, cause=cause))

    def close_idle_gate(self) -> None:
        """Close a gate without open calls; if it does not answer, the reply, which is paid for, is kept anyway."""
        turn = self.visit.turn
        try:
            self.gate.close(turn.id, turn.fence)
        except TransientError as error:
            log.warning("gate of turn %s, none of whose calls is open, not closed: %s", turn.id, error)
