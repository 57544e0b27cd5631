"""A fork: a turn that continues from a step of another turn, with what was known at that step (ADR 34).

Whoever creates it copies the journal of the earlier steps, and the origin's latest preparation. The fork's first visit
works out here how much of that preparation was already true at the step, and what the copied calls mean for later ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.recall import Recall
from harness_worker.core.records import Call, Turn, TurnPreparation, in_order
from harness_worker.core.replay import after_calls
from harness_worker.core.strategy import after_use


def is_new_fork(turn: Turn) -> bool:
    """Whether the turn is a fork with copied steps and none of its own yet."""
    return turn.step == turn.first_step > 0


def adopt_past(snapshot: Snapshot, *, calls: Iterable[Call]) -> Decision[Turn]:
    """Restore what the copied steps mean for later calls. Idempotent until the fork's first own step.

    Args:
        snapshot: The fork.
        calls: The calls of its copied steps.
    """
    turn = snapshot.turn
    given = in_order(call for call in calls if call.step < turn.first_step)
    preparation = None if turn.preparation is None else _as_of(turn.preparation, turn.first_step)
    taken = replace(turn, preparation=preparation, recall=replace(_recall_of(given), warned=turn.recall.warned))
    return Decision(result=taken, turn=taken)


def _recall_of(calls: list[Call]) -> Recall:
    """What the calls mean for later ones; progress is counted from the fork's own steps only."""
    return replace(after_calls(Recall(), calls), used=after_use((), calls))


def _as_of(last: TurnPreparation, step: int) -> TurnPreparation:
    """What a step was sent with, as far as it can be told from the turn's latest preparation.

    A summary that was made later is dropped, and the length of the step's prompt is unknown. When a summary was last
    requested is the fork's own: whoever created it copied none of that.
    """
    notes = {at: note for at, note in last.notes.items() if int(at) <= step}
    bound = min(last.bound_from, step)
    as_of = replace(last, notes=notes, bound_from=bound, prompt_tokens=0, prompt_chars=0)
    return as_of if last.compacted_at <= step else replace(as_of, summary=None, compacted_at=0)
