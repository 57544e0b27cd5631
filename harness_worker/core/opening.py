"""The first commit of a visit: the claim, and everything that SQL alone can decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness_worker.core.approvals import edited
from harness_worker.core.collect import collect
from harness_worker.core.collect_reads import open_reads
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.parking import rest
from harness_worker.core.progress import AskModel, Dispatch, Next, exhausted
from harness_worker.core.registration.tools import ToolSpec
from harness_worker.core.timing import Timing
from harness_worker.core.visits import Held, Visit, claim
from harness_worker.core.warnings import with_warnings


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A visit under way.

    Args:
        visit: The hold on the turn.
        after: What comes next, if that is known without the gate; ``None``: the visit has to collect first.
    """

    visit: Visit
    after: Next | None


def open_visit(
    snapshot: Snapshot,
    *,
    owner: str,
    timing: Timing,
    tools_of: Callable[[str], Sequence[ToolSpec] | None],
) -> Decision[Opened | Held | None]:
    """Claim the turn, and collect in the same commit what SQL alone decides.

    Three kinds of turn need a second commit:

    * One with open reads, because only the gate knows their outcomes. If the turn must stop, the gate has to be closed
      before it is asked for them.
    * One that goes on and has calls whose arguments a person edited, because their tools have to check these.
    * One whose next calls are reads. These are committed by a visit that has raised its fence at the gate and still
      holds the turn. If the turn were released earlier, a coordinator that was stopped at this point could recreate a
      flushed gate and start a read after the turn's end.

    A turn without open reads therefore stops even while the gate is silent: SQL alone refuses late writes.

    Args:
        snapshot: The turn and its calls, under the lock.
        owner: The visit's name; see :func:`claim`.
        timing: The protocol's times.
        tools_of: Gives an agent's tools by its name; ``None`` if the agent is not served here.
    """
    resting = rest(snapshot)
    if resting is not None:
        return resting.with_result(None)
    claimed = claim(snapshot, owner=owner, timing=timing)
    visit = claimed.result
    if not isinstance(visit, Visit):
        return claimed.with_result(visit)
    visit = replace(visit, tools=tools_of(visit.turn.agent))
    goes_on = visit.stop is None
    if open_reads(snapshot.calls) or (goes_on and edited(snapshot.calls)):
        return claimed.with_result(Opened(visit=visit, after=None))
    if goes_on and all(call.collected for call in snapshot.calls) and exhausted(visit.turn, now=visit.now) is None:
        return claimed.with_result(Opened(visit=visit, after=AskModel(turn=visit.turn)))
    held = replace(snapshot, turn=visit.turn)
    after = collect(held, visit=visit)
    if isinstance(after.result, Dispatch) and any(call.is_read for call in after.result.calls):
        return claimed.with_result(Opened(visit=visit, after=None))
    both = replace(after, turn=after.turn or visit.turn, events=claimed.events + after.events)
    return with_warnings(both.with_result(Opened(visit=visit, after=after.result)), now=snapshot.now)
