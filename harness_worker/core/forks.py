"""A fork: a turn that goes on from a step of another one, with what was known there (ADR 34).

Whoever makes it copies the journal of the steps before, and the origin's preparation as that was last. What of it
stood at that step, and what it means for later calls, is told here, in the fork's first visit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.recall import Recall
from harness_worker.core.records import Call, Turn, TurnPreparation
from harness_worker.core.replay import after_calls
from harness_worker.core.strategy import after_use


def is_new_fork(turn: Turn) -> bool:
    """Whether a fork that was given steps has none of its own yet."""
    return turn.step == turn.first_step > 0


def adopt_past(snapshot: Snapshot, *, calls: Iterable[Call]) -> Decision[Turn]:
    """Restore what the copied steps mean for later calls. Done again before its first step, this changes nothing.

    Args:
        snapshot: The fork.
        calls: Those of the steps that it was given.
    """
    turn = snapshot.turn
    given = sorted((call for call in calls if call.step < turn.first_step), key=lambda each: (each.step, each.position))
    preparation = None if turn.preparation is None else _as_of(turn.preparation, turn.first_step)
    taken = replace(turn, preparation=preparation, recall=replace(_recall_of(given), warned=turn.recall.warned))
    return Decision(result=taken, turn=taken)


def _recall_of(calls: list[Call]) -> Recall:
    """What the calls mean for later ones; whether the turn gets on is for its own steps to tell."""
    return replace(after_calls(Recall(), calls), used=after_use((), calls))


def _as_of(last: TurnPreparation, step: int) -> TurnPreparation:
    """What a step was sent with, as far as what its turn was sent with last still tells.

    A summary that was made later is not of that step, and how long its prompt was is not known.
    """
    notes = {at: note for at, note in last.notes.items() if int(at) <= step}
    bound = min(last.bound_from, step)
    as_of = replace(last, notes=notes, bound_from=bound, tried_at=-1, prompt_tokens=0, prompt_chars=0)
    return as_of if last.compacted_at <= step else replace(as_of, summary=None, compacted_at=0)
