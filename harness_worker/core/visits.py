"""Who drives a turn: claiming it, holding it, releasing it (docs/architecture.md, "A turn, step by step")."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import StrEnum

from harness_worker.core.children import all_parked, allowed_until, open_delegated
from harness_worker.core.decisions import Decision, Snapshot, T
from harness_worker.core.records import Call, CallStatus, EventDraft, Turn
from harness_worker.core.registration.tools import ToolSpec
from harness_worker.core.timing import Timing
from harness_worker.wire import QUEUE_LOOK_S, TurnStatus

VISIT_SLACK_S = 10.0
"""How long after its turn's deadline a visit may still hold it."""

MODEL_SLACK_S = 10.0
"""How much longer a visit may last than the model call in it."""


class StopCause(StrEnum):
    """Why a turn must end now, even if calls are still running."""

    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Somebody else drives the turn; ``stop`` says that the holder should give up what it waits for."""

    stop: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One coordinator's hold on a turn.

    Args:
        turn: The turn as claimed. Every commit of the visit is conditional on its fence; if ``wakes`` is higher at
            release, somebody nudged it.
        calls: Its calls as claimed.
        owner: The holder's name, unique to the visit.
        now: The database's clock at the claim.
        timing: The protocol's times.
        apart: Reads that this visit found may not run beside those before them in their wave.
        tools: Its agent's tools; ``None`` if this worker does not serve the agent.
        asked: The holder's monotonic clock just before the claim, in seconds; time from then on is charged to the turn.
    """

    turn: Turn
    calls: tuple[Call, ...]
    owner: str
    now: float
    timing: Timing
    apart: AbstractSet[str] = frozenset()
    tools: Sequence[ToolSpec] | None = None
    asked: float = 0.0

    @property
    def stop(self) -> StopCause | None:
        """Why the turn must end now, if it must."""
        return stop_cause(self.turn, self.now)


def stop_cause(turn: Turn, now: float) -> StopCause | None:
    """Why the turn must end now, if it must: it was cancelled or is past its deadline."""
    if turn.cancel_requested:
        return StopCause.CANCELLED
    return StopCause.DEADLINE if now > turn.deadline_at else None


def claim(snapshot: Snapshot, *, owner: str, timing: Timing) -> Decision[Visit | Held | None]:
    """Claim the turn, or nudge (``wakes``) the visit that holds it, unless that has the same name (``owner``).

    ``None`` if the turn is over, or if it has to wait: for an earlier turn of its session, or because its tenant
    already runs as many turns as it may. Only a cancelled turn need not wait. A turn that has waited gets all its time
    from now on. The time that it, or a turn it waits for, has waited for a person is added to its deadline. A turn that
    must stop before its first claim never counts as started.
    """
    turn, now = snapshot.turn, snapshot.now
    if turn.status.is_final:
        return Decision(result=None)
    if turn.waits and snapshot.is_behind and not turn.cancel_requested:
        return Decision(result=None, turn=replace(turn, wake_at=now + QUEUE_LOOK_S))
    if turn.status is TurnStatus.QUEUED and snapshot.is_crowded and not turn.cancel_requested:
        return Decision(result=None, turn=replace(turn, waits=True, wake_at=now + QUEUE_LOOK_S))
    is_held = turn.lease_until is not None and turn.lease_until >= now
    if turn.owner is not None and turn.owner != owner and is_held:
        return Decision(result=Held(stop=turn.cancel_requested), turn=replace(turn, wakes=turn.wakes + 1))
    deadline_at = _deadline_at(snapshot)
    visit_deadline = _visit_deadline(deadline_at, timing.visit_s, now)
    held = replace(
        turn,
        status=TurnStatus.RUNNING,
        waits=False,
        parked_at=None,
        deadline_at=deadline_at,
        fence=turn.fence + 1,
        owner=owner,
        lease_until=min(now + timing.lease_ttl_s, visit_deadline),
        visit_deadline=visit_deadline,
        wake_at=now,
    )
    if turn.started_at is None and stop_cause(held, now) is None:
        held = replace(held, started_at=now)
    visit = Visit(turn=held, calls=snapshot.calls, owner=owner, now=now, timing=timing)
    return Decision(result=visit, turn=held, events=_claim_events(turn, held))


def prolong(snapshot: Snapshot, *, turn: Turn, visit_s: float) -> Decision[bool]:
    """Let the visit that holds ``turn`` last ``visit_s`` seconds from now on; ``False`` if it no longer holds it."""
    held, now = snapshot.turn, snapshot.now
    if held.visit_deadline is None or (held.owner, held.fence) != (turn.owner, turn.fence):
        return Decision(result=False)
    later = max(held.visit_deadline, _visit_deadline(held.deadline_at, visit_s, now))
    return Decision(result=True, turn=replace(held, visit_deadline=later))


def _visit_deadline(deadline_at: float, visit_s: float, now: float) -> float:
    return min(now + visit_s, max(now, deadline_at) + VISIT_SLACK_S)


def begins_steps(turn: Turn) -> bool:
    """Whether the turn has a first step: it has started, and its budget allows a model call."""
    return turn.started_at is not None and turn.budget.max_steps > 0


def frees_session(before: Turn, after: Turn | None) -> bool:
    """Whether a change ends a turn that a later one of its session waits for."""
    return before.followed and not before.status.is_final and after is not None and after.status.is_final


def _deadline_at(snapshot: Snapshot) -> float:
    """The turn's deadline, put off by the time it waited for other turns or for people."""
    turn, now = snapshot.turn, snapshot.now
    if turn.waits:
        return now + turn.budget.timeout_s
    if open_delegated(snapshot.calls):
        return allowed_until(turn, snapshot.calls, snapshot.children, now=now)
    return turn.deadline_at + (now - turn.parked_at if turn.parked_at is not None else 0.0)


def _claim_events(turn: Turn, held: Turn) -> tuple[EventDraft, ...]:
    if turn.started_at is None and held.started_at is not None:
        started = EventDraft(type="turn.started", data={"agent": turn.agent})
        first = EventDraft(type="step.started", data={"step": held.step})
        return (started, first) if begins_steps(held) else (started,)
    if turn.owner is not None:
        return (EventDraft(type="turn.redelivered", data={"step": turn.step}),)
    return ()


def holds(visit: Visit, snapshot: Snapshot) -> bool:
    """Whether the visit may still commit; a higher fence, its own release or the turn's end makes it a zombie."""
    turn = snapshot.turn
    return turn.fence == visit.turn.fence and turn.owner == visit.owner and not turn.status.is_final


def fenced(visit: Visit, rule: Callable[[Snapshot], Decision[T]]) -> Callable[[Snapshot], Decision[T | None]]:
    """The rule, conditional on the visit's hold: a zombie's commit changes nothing, and its result is ``None``."""

    def guarded(snapshot: Snapshot) -> Decision[T | None]:
        return rule(snapshot) if holds(visit, snapshot) else Decision(result=None)

    return guarded


def nudged(visit: Visit, turn: Turn) -> bool:
    """Whether somebody nudged the turn while the visit held it."""
    return turn.wakes != visit.turn.wakes


def release(visit: Visit, turn: Turn, *, wake_at: float, now: float) -> Turn:
    """The turn with nobody driving it. A nudge during the visit wins over ``wake_at``."""
    return replace(
        turn,
        owner=None,
        lease_until=None,
        visit_deadline=None,
        wake_at=now if nudged(visit, turn) else wake_at,
    )


def look_period_s(looks: int, timing: Timing) -> float:
    """How long to wait for silent calls before the next look-in, after ``looks`` of them."""
    return timing.look_s * (2 if looks > 0 else 1)


def look_in(
    turn: Turn,
    calls: tuple[Call, ...],
    *,
    now: float,
    timing: Timing,
    lives_s: Iterable[float] = (),
    children: Sequence[Turn] = (),
) -> float:
    """When somebody must next look at a turn whose calls run silently.

    Soon at first, then half as often, and rarely if everything it waits for waits for people; never later than the end
    of a running call's lease, or than a deadline and its grace.

    Args:
        turn: The turn; its ``looks`` counts the look-ins so far.
        calls: Its calls.
        now: The database's clock.
        timing: The protocol's times.
        lives_s: For each running read, how many seconds longer the gate presumes it alive.
        children: The turns of its open calls of agents.
    """
    if all_parked(calls, children):  # its deadline keeps moving while they wait
        return now + QUEUE_LOOK_S
    by_habit = now + look_period_s(turn.looks, timing)
    grace_s = timing.hard_s + timing.grace_s
    deadlines = [call.deadline_at for call in calls if call.is_open and call.deadline_at is not None]
    ends = [at + grace_s for at in deadlines if at + grace_s > now]  # later, a write's lease may still be running
    leases = [call.lease_until for call in calls if call.status is CallStatus.RUNNING and call.lease_until is not None]
    return max(now, min([by_habit, turn.deadline_at, *ends, *leases, *(now + live_s for live_s in lives_s)]))
