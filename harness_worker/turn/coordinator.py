"""The task that drives a turn: look at it and take it a step further (docs/architecture.md, "A turn, step by step")."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

from harness_worker.core.approvals import resolve
from harness_worker.core.collect import NO_EDITS, collect
from harness_worker.core.collect_reads import NO_REPORTS, ReadReport, open_reads
from harness_worker.core.decisions import Decision, Snapshot, T
from harness_worker.core.forks import adopt_past, is_new_fork
from harness_worker.core.lifecycle import merge
from harness_worker.core.opening import Opened, open_visit
from harness_worker.core.progress import AskHooks, AskModel, Dispatch, Finished, Next
from harness_worker.core.prompting.artifact_reading import every_tool
from harness_worker.core.prompting.prompt import is_unprepared
from harness_worker.core.records import Call, Turn
from harness_worker.core.registration.tools import AgentSpec, ToolSpec
from harness_worker.core.reply_commit import give_up, go_on_asked
from harness_worker.core.timing import Timing
from harness_worker.core.visits import Held, Visit, claim, fenced, release
from harness_worker.errors import ConfigError, TransientError
from harness_worker.ports import Clock, Dispatcher, Gate, ReadAttempt, StopSignal, TurnStore
from harness_worker.turn.asking import Asking
from harness_worker.turn.deciding import Deciding
from harness_worker.turn.edits import check_edits
from harness_worker.turn.finalizer import Finalizer
from harness_worker.turn.hooking import HookCaller, tell_start
from harness_worker.turn.model_step import ModelStep
from harness_worker.turn.planner import reads_apart
from harness_worker.turn.pre_hooks import PreHooks
from harness_worker.turn.sending import Sending
from harness_worker.turn.system_errors import is_passing, system_errors_are_transient
from harness_worker.wire import StopReason

log = logging.getLogger(__name__)

INTERNAL_MESSAGE = "the harness failed to drive this turn; the worker's log says more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator:
    """Drives turns; keeps no state of any turn.

    Args:
        store: The journal.
        gate: The arbiter of reads.
        dispatcher: Sends work.
        model_step: Asks the model.
        agents: The agents that this process serves, by name.
        holding: Keeps a visit's lease alive within its context, and yields the signal for the visit to give up.
        new_owner: Makes a name for a visit that no other visit has; one that has it takes the turn from the other.
        timing: The protocol's times.
        finalizer: Ends turns.
        threshold_chars: The longest reason for which a hook may deny a call, in characters.
        hooks: Calls the agents' hooks.
        clock: This process's monotonic time.
        artifact_reader: A tool that may be called besides the agent's own.
    """

    store: TurnStore
    gate: Gate
    dispatcher: Dispatcher
    model_step: ModelStep
    agents: Mapping[str, AgentSpec]
    holding: Callable[[Visit], AbstractContextManager[StopSignal]]
    new_owner: Callable[[], str]
    timing: Timing
    finalizer: Finalizer
    threshold_chars: int
    hooks: HookCaller
    clock: Clock
    artifact_reader: ToolSpec

    def advance(self, turn_id: str, *, was_told: bool = False) -> None:
        """Look at the turn once. Safe to call at any time, any number of times, from anywhere.

        Raises only if the turn cannot be read or claimed. If something goes wrong later, the turn is left to the next
        look or ends as failed. An error of the system, such as a lack of memory, is no bug: the next look goes on.

        Args:
            turn_id: The turn's id.
            was_told: This look was triggered by a stop command, so it must not broadcast another.

        Raises:
            TransientError: The store did not answer, or the system failed; the turn was not looked at.
            ConfigError: The database lacks the tables of this version.
            Exception: A bug of ours in the claim itself. A row that cannot be read is left for a newer worker.
        """
        opened = self._open(turn_id)
        if isinstance(opened, Held) and opened.stop and not was_told:
            self.dispatcher.stop(turn_id)
        if not isinstance(opened, Opened):
            return
        with self.holding(opened.visit) as stop:
            self._visit(opened.visit, partial(self._next_or_failed, opened, stop))

    def _open(self, turn_id: str) -> Opened | Held | None:
        opening = partial(open_visit, owner=self.new_owner(), timing=self.timing, tools_of=self._tools_of)
        asked = self.clock.monotonic()
        with system_errors_are_transient():
            try:
                opened = self.store.transact(turn_id, self.finalizer.sealing(opening))
            except Exception as error:  # the task boundary: a bug of ours ends the turn instead of repeating for ever
                if is_passing(error) or isinstance(error, ConfigError):
                    raise
                log.exception("visit of turn %s could not open", turn_id)
                self._fail_unopened(turn_id)
                return None
        return replace(opened, visit=replace(opened.visit, asked=asked)) if isinstance(opened, Opened) else opened

    def _fail_unopened(self, turn_id: str) -> None:
        """End the turn under a bare claim. A turn that cannot even be read stays: a newer worker may read it."""
        visit = self.store.transact(turn_id, partial(claim, owner=self.new_owner(), timing=self.timing))
        if isinstance(visit, Visit):
            with self.holding(visit):
                self._visit(visit, partial(self._failed, visit))

    def _visit(self, visit: Visit, work: Callable[[], Finished | Dispatch | None]) -> None:
        try:
            self._carry_out(visit, work())
        except Exception as error:  # the task boundary: the next look sends what could not be sent
            if is_passing(error):
                self._put_off(visit)
                log.warning("visit of turn %s put off: %s: %s", visit.turn.id, type(error).__name__, error)
            else:
                log.exception("visit of turn %s could not carry out its own decision", visit.turn.id)

    def _next_or_failed(self, opened: Opened, stop: StopSignal) -> Finished | Dispatch | None:
        visit = opened.visit
        try:
            return self._next(visit, opened.after, stop)
        except Exception as error:  # the task boundary: a bug of ours ends the turn instead of repeating for ever
            if is_passing(error):
                raise
            log.exception("visit of turn %s failed", visit.turn.id)
            return self._failed(visit)

    def _failed(self, visit: Visit) -> Finished | None:
        """End the turn as failed; for calls that are not reads, SQL alone decides the outcome."""
        reports = self._last_reports(visit) if open_reads(visit.calls) else NO_REPORTS
        failed = partial(give_up, reason=StopReason.INTERNAL, message=INTERNAL_MESSAGE, reports=reports)
        return self._decide(visit, failed)

    def _last_reports(self, visit: Visit) -> Mapping[str, ReadReport]:
        """The reports of the open reads, as far as the gate can give them; it accepts no results from then on."""
        reports = NO_REPORTS
        try:
            self.gate.raise_fence(visit.turn.id, visit.turn.fence)  # else it would report nothing
            reports = self._reports(visit, stop=True)
        except Exception as error:  # the task boundary: the failure may have been in reading these very reports
            if is_passing(error):
                raise
            log.exception("reads of turn %s are reported as lost", visit.turn.id)
        self.gate.close(visit.turn.id, visit.turn.fence)
        return reports

    def _next(self, visit: Visit, after: Next | None, stop: StopSignal) -> Finished | Dispatch | None:
        if isinstance(after, Finished):
            return after
        if not self.gate.raise_fence(visit.turn.id, visit.turn.fence):
            return None
        if visit.stop is None:
            self._tell_start(visit.turn)
        after = after or self._collect(visit)
        while isinstance(after, AskModel | AskHooks):
            after = self._ask(visit, after.turn, stop) if isinstance(after, AskModel) else self._ask_hooks(visit, after)
        return after

    def _collect(self, visit: Visit) -> Next | None:
        stop = visit.stop is not None
        if stop:
            self.gate.close(visit.turn.id, visit.turn.fence)
        reports = self._reports(visit, stop=stop)
        edits = NO_EDITS if stop else check_edits(visit.calls, self.agents.get(visit.turn.agent))
        if edits is None:
            return self._not_served(visit)
        answered = resolve(visit.calls, edits, now=visit.now).calls
        visit = self._keeping_apart(visit, merge(visit.calls, answered))
        return self._decide(visit, partial(collect, visit=visit, reports=reports, edits=edits))

    def _reports(self, visit: Visit, *, stop: bool) -> Mapping[str, ReadReport]:
        """The gate's reports of the visit's open reads, by call id."""
        reads = [ReadAttempt.of(call) for call in open_reads(visit.calls)]
        settled = self.gate.settle(visit.turn.id, visit.turn.fence, reads, close=stop) if reads else []
        return {each.call_id: ReadReport.of(each) for each in settled}

    def _ask(self, visit: Visit, turn: Turn, stop: StopSignal) -> Next | None:
        agent = self.agents.get(turn.agent)
        if agent is None:
            return self._not_served(visit)
        known = self._adopted(visit, turn) if is_new_fork(turn) else turn
        if known is None:
            return None
        asking = Asking(
            model_step=self.model_step,
            clock=self.clock,
            deciding=self._deciding(visit),
            turn=known,
            agent=agent,
            stop=stop,
        )
        return asking.ask()

    def _adopted(self, visit: Visit, turn: Turn) -> Turn | None:
        """The fork, with the effects of its copied steps; ``None`` if another visit drives it now or it has ended."""
        loaded = self.store.load(turn.id)
        return None if loaded is None else self._decide(visit, partial(adopt_past, calls=loaded.calls))

    def _ask_hooks(self, visit: Visit, after: AskHooks) -> Next | None:
        agent = self.agents.get(after.turn.agent)
        if agent is None:
            return self._not_served(visit)
        pre_hooks = PreHooks(
            caller=self.hooks,
            turn=after.turn,
            agent=self._with_every_tool(agent),
            threshold_chars=self.threshold_chars,
        )
        answered = pre_hooks.answered(after.calls)
        visit = self._keeping_apart(visit, merge(after.known, answered))
        return self._decide(visit, partial(go_on_asked, visit=visit, answered=answered))

    def _keeping_apart(self, visit: Visit, calls: Sequence[Call]) -> Visit:
        """The visit, with the calls marked that may not run together, whatever their waves say."""
        agent = self.agents.get(visit.turn.agent)
        return replace(visit, apart=reads_apart(calls, None if agent is None else self._with_every_tool(agent)))

    def _with_every_tool(self, agent: AgentSpec) -> AgentSpec:
        """The agent with every tool that it may call."""
        return replace(agent, tools=every_tool(agent, self.artifact_reader))

    def _tools_of(self, name: str) -> tuple[ToolSpec, ...] | None:
        """The agent's tools; ``None`` if it is not served here."""
        agent = self.agents.get(name)
        return None if agent is None else agent.tools

    def _not_served(self, visit: Visit) -> None:
        log.warning("turn %s wants agent %s, which this worker does not serve", visit.turn.id, visit.turn.agent)
        self._put_off(visit)

    def _decide(self, visit: Visit, rule: Callable[[Snapshot], Decision[T]]) -> T | None:
        return self._deciding(visit).commit(rule)

    def _deciding(self, visit: Visit) -> Deciding:
        return Deciding(store=self.store, gate=self.gate, finalizer=self.finalizer, visit=visit)

    def _carry_out(self, visit: Visit, after: Finished | Dispatch | None) -> None:
        sending = Sending(
            store=self.store, gate=self.gate, dispatcher=self.dispatcher, finalizer=self.finalizer, visit=visit
        )
        match after:
            case None:
                return
            case Finished():
                sending.finish(after)
            case Dispatch():
                sending.dispatch(after)
            case _:
                assert_never(after)

    def _tell_start(self, turn: Turn) -> None:
        agent = self.agents.get(turn.agent)
        if agent is not None and (is_unprepared(turn) or is_new_fork(turn)):
            tell_start(self.hooks, agent.hooks, turn)

    def _put_off(self, visit: Visit) -> None:
        """Release the turn, to be looked at again soon; if that fails, its lease will expire."""

        def let_go(snapshot: Snapshot) -> Decision[None]:
            later = snapshot.now + self.timing.look_s
            return Decision(result=None, turn=release(visit, snapshot.turn, wake_at=later, now=snapshot.now))

        try:
            with system_errors_are_transient():
                self.store.transact(visit.turn.id, fenced(visit, let_go))
        except TransientError as error:
            log.warning("turn %s not released, its lease will run out: %s", visit.turn.id, error)
