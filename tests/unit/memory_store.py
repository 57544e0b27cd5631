"""A ``TurnStore`` in memory: what a decision writes is what the SQL store would write, without SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from harness_worker.core.afterwards import after, needs_beats
from harness_worker.core.budget import BudgetLimits, agent_limits
from harness_worker.core.children import awaited_by, leaves_children, open_delegated
from harness_worker.core.decisions import Artifact, Decision, Snapshot
from harness_worker.core.memory.memories import Memory, scope_of
from harness_worker.core.prompting.past import PastTurn
from harness_worker.core.queueing import first_message, queued_at, queued_event
from harness_worker.core.records import Call, CallStatus, Event, EventDraft, Message, Park, Turn
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.visits import frees_session
from harness_worker.ports import ExpiredArtifact, HeldTurn, LoadedTurn, OverdueTurn, RunningCall, WaitingTurn
from harness_worker.wire import Priority, TurnStatus

T = TypeVar("T")


class MemoryTurnStore:
    """Implements ``ports.TurnStore`` and ``ports.MemoryStore``.

    Args:
        clock: The database's clock, seconds since the epoch.

    Attributes:
        passes_over: Whether somebody holds the row of the turn that an ended one would wake, which is not waited for.
        tenant_turns: How many turns of one tenant may run at a time; ``None``: any number.
        turns: Every turn, by id.
        events: Every committed event, oldest first.
        artifacts: Every artifact's metadata, by id.
        judges: Every score that is due, as (turn id, judge).
        memories: What is remembered of each turn, oldest first.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._calls: dict[str, dict[tuple[int, int], Call]] = {}
        self._left: dict[str, Snapshot] = {}
        self._messages: dict[str, list[Message]] = {}
        self.passes_over: Callable[[], bool] = lambda: False
        self.tenant_turns: int | None = None
        self.turns: dict[str, Turn] = {}
        self.events: list[Event] = []
        self.artifacts: dict[str, Artifact] = {}
        self.judges: list[tuple[str, str]] = []
        self.memories: list[tuple[Turn, Memory]] = []

    def transact(self, turn_id: str, decide: Callable[[Snapshot], Decision[T]], *, follows: bool = False) -> T | None:
        """See ``ports.TurnStore.transact``; what follows is decided on what the last commit left, without its beats."""
        turn, left = self.turns.get(turn_id), self._left.pop(turn_id, None)
        if turn is None:
            return None
        if follows and left is not None and left.turn is turn:
            left = replace(left, now=self._clock())
            decision = None if needs_beats(left) else decide(left)
            if decision is not None and after(left, decision) != left:
                self.commit(left, decision)
                return decision.result
        is_behind = turn.waits and any(t.number < turn.number for t in self._unfinished(turn))
        snapshot = Snapshot(now=self._clock(), turn=turn, calls=self._snapshot_calls(turn), is_behind=is_behind)
        if asked := {call.call_id for call in open_delegated(snapshot.calls)}:
            children = tuple(child for child in self.children(turn.id) if child.parent_call_id in asked)
            known = (park.turn_id for child in children for park in child.parked_below)
            waiting = (self.turns[turn_id] for turn_id in known)
            parked = {Park(turn_id=t.id, fence=t.fence) for t in waiting if t.status is TurnStatus.REQUIRES_ACTION}
            snapshot = replace(snapshot, children=children, parked=frozenset(parked))
        if self.tenant_turns is not None and turn.status is TurnStatus.QUEUED and turn.parent_id is None:
            roots = [t for t in self._of_tenant(turn) if t.parent_id is None and t.parked_at is None]
            running = [t for t in roots if t.status is TurnStatus.RUNNING]
            snapshot = replace(snapshot, is_crowded=len(running) >= self.tenant_turns)
        decision = decide(snapshot)
        self.commit(snapshot, decision)
        return decision.result

    def commit(self, before: Snapshot, decision: Decision[T]) -> None:
        """Write the decision: only its turn, calls, messages, events and artifacts; rows it leaves out stay."""
        turn_id = before.turn.id
        for call in decision.calls:
            self._calls[turn_id][call.step, call.position] = call
        self._append(turn_id, decision.messages)
        turn = decision.turn or before.turn
        counts = {"last_seq": before.turn.last_seq, "message_count": before.turn.message_count}
        if decision.events:
            counts["last_seq"] += len(decision.events)
            self._add_events(turn_id, decision.events, first=before.turn.last_seq + 1)
        if decision.messages:
            counts["message_count"] += len(decision.messages)
        self.turns[turn_id] = replace(turn, **counts)
        self._left[turn_id] = replace(after(before, decision), turn=self.turns[turn_id])
        self.judges += [(turn_id, judge) for judge in decision.judges]
        self.memories += [(before.turn, memory) for memory in decision.memories]
        for artifact in decision.artifacts:
            self.artifacts.setdefault(artifact.id, artifact)
        for child in decision.children:
            self._add(child)
        self._tell_others(before, decision)

    def _tell_others(self, before: Snapshot, decision: Decision[T]) -> None:
        if frees_session(before.turn, decision.turn):
            self._wake_next(before.turn)
        if leaves_children(before, decision.turn):
            self._stop_children(before.turn)
        awaited = awaited_by(before.turn, decision.turn)
        if awaited is not None and not self.turns[awaited].status.is_final and not self.passes_over():
            self._wake(self.turns[awaited])

    def _stop_children(self, turn: Turn) -> None:
        for child in self.children(turn.id):
            below = self.children(child.id) if self.cancel(child.id) else ()
            for grandchild in below:
                if not self.passes_over():
                    self.cancel(grandchild.id)

    def children(self, turn_id: str) -> tuple[Turn, ...]:
        """The turns that calls of this one are, oldest first."""
        return tuple(turn for turn in self.turns.values() if turn.parent_id == turn_id)

    def rewind(self, turn: Turn) -> None:
        """Have a turn as it is given, with the first of its messages and all its calls, as a fork has them."""
        self.turns[turn.id] = turn
        self._messages[turn.id] = self._messages[turn.id][: turn.message_count]
        self._left.pop(turn.id, None)

    def insert_turn(self, turn: Turn) -> None:
        """See ``ports.TurnStore.insert_turn``."""
        if turn.id in self.turns:
            return
        now = self._clock()
        number = 1 + sum((t.tenant, t.session_id) == (turn.tenant, turn.session_id) for t in self.turns.values())
        ahead = self._unfinished(turn)
        for each in ahead:
            self.turns[each.id] = replace(each, followed=True)
        self._add(queued_at(replace(turn, number=number, waits=bool(ahead)), now))

    def load(self, turn_id: str) -> LoadedTurn | None:
        """See ``ports.TurnStore.load``."""
        turn = self.turns.get(turn_id)
        return None if turn is None else LoadedTurn(turn, self._ordered(turn_id))

    def history(self, turn_id: str) -> tuple[Message, ...]:
        """See ``ports.TurnStore.history``."""
        return tuple(self._messages.get(turn_id, ()))

    def events_of(self, turn_id: str) -> tuple[Event, ...]:
        """See ``ports.TurnStore.events_of``."""
        return tuple(event for event in self.events if event.turn_id == turn_id)

    def past(self, turn: Turn) -> tuple[PastTurn, ...]:
        """See ``ports.TurnStore.past``."""
        session = (turn.tenant, turn.session_id)
        found = [t for t in self.turns.values() if (t.tenant, t.session_id) == session and t.status.is_final]
        past = [
            PastTurn(
                status=each.status,
                output_text=each.output_text,
                preparation=each.preparation,
                messages=self.history(each.id),
                stop_reason=each.stop_reason,
                carried=each.carried,
            )
            for each in sorted(found, key=lambda t: t.number)
            if each.number < turn.number
        ]
        start = max((at for at, each in enumerate(past) if each.carried is not None), default=0)
        return tuple(past[start:])

    def next_of_session(self, turn: Turn) -> WaitingTurn | None:
        """See ``ports.TurnStore.next_of_session``."""
        later = [WaitingTurn(t.id, t.priority) for t in self._unfinished(turn) if t.number > turn.number]
        return later[0] if later else None

    def next_of_tenant(self, turn: Turn) -> list[WaitingTurn]:
        """See ``ports.TurnStore.next_of_tenant``."""
        if self.tenant_turns is None:
            return []
        mine = [t for t in self.turns.values() if t.tenant == turn.tenant and t.status is TurnStatus.QUEUED and t.waits]
        free = [t for t in mine if not any(each.number < t.number for each in self._unfinished(t))]
        return [
            WaitingTurn(t.id, t.priority)
            for t in sorted(free, key=lambda t: (t.priority != Priority.INTERACTIVE, t.created_at))[:2]
        ]

    def beat_turns(self, visits: Sequence[HeldTurn], ttl_s: float) -> frozenset[HeldTurn]:
        """See ``ports.TurnStore.beat_turns``."""
        return frozenset(visit for visit in visits if not self.goes_on(visit, ttl_s))

    def goes_on(self, visit: HeldTurn, ttl_s: float) -> bool:
        """Prolong the lease of one visit; whether it goes on."""
        turn = self.turns.get(visit.turn_id)
        if turn is None or (turn.owner, turn.fence) != visit[1:] or turn.visit_deadline is None:
            return False
        self.turns[visit.turn_id] = replace(turn, lease_until=min(self._clock() + ttl_s, turn.visit_deadline))
        return not turn.cancel_requested

    def beat_calls(self, runs: Sequence[RunningCall], ttl_s: float) -> None:
        """See ``ports.TurnStore.beat_calls``: by runner, not by attempt, like the SQL store."""
        for run in runs:
            call = self._running(run)
            if call is not None and (call.lease_until or 0.0) > 0:  # else its process is known to be dead
                self._put(replace(call, lease_until=self._clock() + ttl_s))

    def lose_call(self, run: RunningCall) -> str | None:
        """See ``ports.TurnStore.lose_call``."""
        call = self._running(run)
        if call is not None and call.attempt >= run.attempt:
            self._put(replace(call, lease_until=-self._clock()))
        turn = self.turns.get(run.turn_id)
        return None if turn is None else turn.priority

    def overdue(self, limit: int, backoff_s: float) -> list[OverdueTurn]:
        """See ``ports.TurnStore.overdue``."""
        now = self._clock()
        due = sorted((t for t in self.turns.values() if _is_due(t, now)), key=lambda t: (t.wake_at or 0.0, t.id))[
            :limit
        ]
        for turn in due:
            self.turns[turn.id] = replace(turn, wake_at=now + _pause_s(turn, now, backoff_s))
        return [
            OverdueTurn(turn.id, turn.priority, turn.status is TurnStatus.QUEUED, turn.wake_at or 0.0) for turn in due
        ]

    def give_back(self, taken: Sequence[OverdueTurn]) -> None:
        """See ``ports.TurnStore.give_back``."""
        now = self._clock()
        for each in taken:
            turn = self.turns[each.id]
            if turn.wake_at is not None and turn.wake_at > now and _is_unheld(turn, now):
                self.turns[each.id] = replace(turn, wake_at=each.since)

    def ping(self) -> None:
        """See ``ports.TurnStore.ping``."""

    def recall(self, tenant: str, scope: str, limit: int) -> tuple[Memory, ...]:
        """See ``ports.MemoryStore.recall``."""
        found = [memory for turn, memory in self.memories if (turn.tenant, scope_of(turn)) == (tenant, scope)]
        return tuple(dict.fromkeys(reversed(found)))[:limit]

    def cancel(self, turn_id: str) -> bool:
        """What the gateway writes when a client cancels; whether the turn was still going."""
        turn = self.turns[turn_id]
        if turn.status.is_final:
            return False
        self.turns[turn_id] = replace(turn, cancel_requested=True, wakes=turn.wakes + 1, wake_at=self._clock())
        return True

    def _unfinished(self, turn: Turn) -> list[Turn]:
        """The turns of the same session that have not ended, in order."""
        session = (turn.tenant, turn.session_id)
        found = [t for t in self.turns.values() if (t.tenant, t.session_id) == session and not t.status.is_final]
        return sorted(found, key=lambda t: t.number)

    def _wake_next(self, turn: Turn) -> None:
        following = self.next_of_session(turn)
        if following is not None:
            self._wake(self.turns[following[0]])

    def _wake(self, turn: Turn) -> None:
        self.turns[turn.id] = replace(turn, wakes=turn.wakes + 1, wake_at=self._clock())

    def _add(self, turn: Turn) -> None:
        self.turns[turn.id] = turn
        self._calls[turn.id] = {}
        self._messages[turn.id] = [first_message(turn)]
        self.events.append(queued_event(turn))

    def _of_tenant(self, turn: Turn) -> list[Turn]:
        return [each for each in self.turns.values() if each.tenant == turn.tenant]

    def _snapshot_calls(self, turn: Turn) -> tuple[Call, ...]:
        latest = turn.step - 1
        return tuple(c for c in self._ordered(turn.id) if not c.collected or c.step == latest)

    def _ordered(self, turn_id: str) -> tuple[Call, ...]:
        return tuple(call for _, call in sorted(self._calls[turn_id].items()))

    def _running(self, run: RunningCall) -> Call | None:
        step, position = map(int, run.call_id.split("."))
        call = self._calls.get(run.turn_id, {}).get((step, position))
        mine = call is not None and call.status is CallStatus.RUNNING and call.runner == run.runner
        return call if mine else None

    def _put(self, call: Call) -> None:
        self._calls[call.turn_id][call.step, call.position] = call

    def _append(self, turn_id: str, messages: Iterable[Message]) -> None:
        kept = self._messages[turn_id]
        for message in messages:
            kept.append(replace(message, position=len(kept)))

    def _add_events(self, turn_id: str, drafts: Iterable[EventDraft], *, first: int) -> None:
        now = self._clock()
        for seq, draft in enumerate(drafts, first):
            self.events.append(Event(turn_id=turn_id, seq=seq, type=draft.type, at=now, data=draft.data))


class MemoryArtifacts:
    """Implements ``ports.Artifacts``; nothing expires here, or everything.

    Args:
        kept: Those that there are, by id.
    """

    def __init__(self, kept: dict[str, Artifact]) -> None:
        self._kept = kept

    def url_of(self, artifact_id: str, *, tenant: str, session_id: str) -> str | None:
        """See ``ports.Artifacts.url_of``."""
        found = self._kept.get(artifact_id)
        return found.url if found is not None and (found.tenant, found.session_id) == (tenant, session_id) else None

    def expired(self, limit: int, *, after: ExpiredArtifact | None = None) -> list[ExpiredArtifact]:
        """See ``ports.Artifacts.expired``: all of them, at once."""
        found = sorted(ExpiredArtifact(0.0, artifact_id, kept.url) for artifact_id, kept in self._kept.items())
        return [each for each in found if after is None or each > after][:limit]

    def forget(self, artifact_ids: Sequence[str]) -> None:
        """See ``ports.Artifacts.forget``."""
        for artifact_id in artifact_ids:
            self._kept.pop(artifact_id, None)


class MemoryCatalogue:
    """Implements ``ports.Catalogue``; one application publishes here."""

    def __init__(self) -> None:
        self._caps: dict[str, BudgetLimits] = {}

    def publish(self, app: str, agents: Iterable[AgentSpec]) -> None:  # noqa: ARG002 - the port's signature
        """See ``ports.Catalogue.publish``."""
        self._caps = {agent.name: agent_limits(agent.budget) for agent in agents}

    def renew(self, app: str, agents: Iterable[AgentSpec]) -> None:
        """See ``ports.Catalogue.renew``."""
        self.publish(app, agents)

    def caps_of(self, agent: str) -> BudgetLimits | None:
        """See ``ports.Catalogue.caps_of``."""
        return self._caps.get(agent)


def _pause_s(turn: Turn, now: float, backoff_s: float) -> float:
    waits = turn.status is TurnStatus.QUEUED and turn.priority == "batch"
    return min(max(backoff_s, now - turn.created_at), 600.0) if waits else backoff_s


def _is_unheld(turn: Turn, now: float) -> bool:
    return turn.owner is None or turn.lease_until is None or turn.lease_until < now


def _is_due(turn: Turn, now: float) -> bool:
    return turn.wake_at is not None and turn.wake_at <= now and _is_unheld(turn, now) and not turn.status.is_final
