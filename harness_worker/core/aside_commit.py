"""The commit of an aside: a model call beside a turn's steps."""

from __future__ import annotations

from dataclasses import replace

from harness_worker.core.asides import Aside
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.progress import AskModel, Next, exhausted, in_next_visit, run_out, stop_turn
from harness_worker.core.records import Turn
from harness_worker.core.visits import Visit, stop_cause
from harness_worker.core.warnings import CONTEXT_LIMIT


def commit_aside(snapshot: Snapshot, *, visit: Visit, aside: Aside) -> Decision[Next]:
    """Store an aside: charge for it, report it, and let the turn go on to its step if it still may."""
    fresh = replace(snapshot, calls=())
    decision = _go_on(fresh, visit, _with(snapshot.turn, aside))
    return replace(decision, events=(aside.event, *decision.events))


def _with(turn: Turn, aside: Aside) -> Turn:
    """The turn, charged for the aside; after a summary, its context's length may be warned of again."""
    warned = turn.recall.warned
    if aside.event.type == "compaction.completed":
        warned = tuple(name for name in warned if name != CONTEXT_LIMIT)
    recall = replace(turn.recall, warned=warned)
    carried = aside.carried or turn.carried
    return replace(turn, used=turn.used.plus(aside.used), preparation=aside.preparation, carried=carried, recall=recall)


def _go_on(fresh: Snapshot, visit: Visit, turn: Turn) -> Decision[Next]:
    cause = stop_cause(turn, fresh.now)
    if cause is not None:
        return stop_turn(fresh, turn, (), cause, {})
    reason = exhausted(turn, now=fresh.now)
    if reason is not None:
        return run_out(fresh, turn, (), reason)
    going: Decision[Next] = Decision(result=AskModel(turn=turn), turn=turn)
    return in_next_visit(going, visit, now=fresh.now)
