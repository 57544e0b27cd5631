"""What follows a visit's last commit: calls are sent or the end is reported, and turns that waited are woken."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from harness_worker.core.children import awaited_by, open_delegated
from harness_worker.core.progress import Dispatch, Finished
from harness_worker.core.records import Call, Turn
from harness_worker.core.visits import Visit
from harness_worker.errors import TransientError
from harness_worker.ports import Dispatcher, Gate, GatePass, TurnStore
from harness_worker.turn.finalizer import Finalizer
from harness_worker.turn.tickets import ticket_for
from harness_worker.wire import child_turn_id

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """Sends what a visit decided. Whatever is lost on the way is in the journal, and a later look sends it again.

    Args:
        store: The journal.
        gate: The arbiter of reads.
        dispatcher: Sends work.
        finalizer: Reports ended turns.
        visit: The visit, whose last decision has been committed.
    """

    store: TurnStore
    gate: Gate
    dispatcher: Dispatcher
    finalizer: Finalizer
    visit: Visit

    def dispatch(self, after: Dispatch) -> None:
        """Send the calls of a turn that was released, and wake turns that waited for that."""
        turn, calls = after.turn, after.calls
        if calls and calls[0].is_delegated:
            self._look_at_children(calls)
        elif calls:
            self._publish(after)
        if after.nudge:
            self.dispatcher.advance(turn.id, turn.priority)
        if turn.parked_at is not None:
            self._make_room()
        if (parent_id := awaited_by(self.visit.turn, turn)) is not None:
            self.dispatcher.advance(parent_id, turn.priority)

    def finish(self, after: Finished) -> None:
        """Close the gate, make way for other turns, and report the end, even if the others cannot be woken."""
        try:
            self._close()
            self._make_way(after)
        finally:
            self.finalizer.report(self.visit.turn)

    def _publish(self, after: Dispatch) -> None:
        """Send calls once the gate knows their attempts; if it refuses, they are left to the next look."""
        turn, calls = after.turn, after.calls
        passes = [_pass(turn, call, after.remaining_s) for call in calls]
        if self.gate.open(turn.id, self.visit.turn.fence, passes):
            side_by_side = calls[0].is_read and len(calls) > 1
            (self.dispatcher.chord if side_by_side else self.dispatcher.chain)(turn, calls)

    def _make_way(self, after: Finished) -> None:
        """Stop what still runs for the ended turn, and wake the turns that waited for its end."""
        turn = self.visit.turn
        if after.left:
            self.dispatcher.stop(turn.id)
        self._look_at_children(open_delegated(after.left))
        if turn.parent_id is not None:
            self.dispatcher.advance(turn.parent_id, turn.priority)
        if after.followed:
            self._wake_next()
        self._make_room()

    def _close(self) -> None:
        """Close the gate for good; if it does not answer, results of what it still admits are ignored."""
        try:
            self.gate.close(self.visit.turn.id, self.visit.turn.fence, is_over=True)
        except TransientError as error:
            log.warning("gate of turn %s, which is over, not closed: %s", self.visit.turn.id, error)

    def _look_at_children(self, calls: Sequence[Call]) -> None:
        """Have the turns of agents' calls looked at; their rows are due anyway, but this is sooner."""
        for call in calls:
            self.dispatcher.advance(child_turn_id(call.turn_id, call.call_id), self.visit.turn.priority)

    def _make_room(self) -> None:
        """Wake turns that waited for this turn's tenant to have room; one that is not woken is looked at later."""
        for waiting in self.store.next_of_tenant(self.visit.turn):
            self.dispatcher.advance(waiting.id, waiting.priority, begins=True)

    def _wake_next(self) -> None:
        """Wake the session's next turn; the commit has made it due anyway, but this is sooner."""
        following = self.store.next_of_session(self.visit.turn)
        if following is not None:
            self.dispatcher.advance(following.id, following.priority, begins=True)


def _pass(turn: Turn, call: Call, remaining_s: float) -> GatePass:
    ticket = ticket_for(turn, call).to_json() if call.is_read else ""
    return GatePass(
        call_id=call.call_id,
        tool_use_id=call.tool_use_id,
        attempt=call.attempt,
        remaining_ms=int(min(remaining_s * 1_000, sys.float_info.max)),
        ticket=ticket,
    )
