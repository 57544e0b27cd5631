"""Asking the model for a turn's next step, or for an aside before it, and committing the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from harness_worker.core.asides import compactable, due
from harness_worker.core.progress import Next
from harness_worker.core.prompting.prompt import Prompt, RequestKind
from harness_worker.core.prompting.tool_selection import callable_tools
from harness_worker.core.records import Turn
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.reply_commit import Said, commit_aside, plan
from harness_worker.core.visits import StopCause
from harness_worker.errors import ModelError, OutOfTime, PromptTooLong, ScriptExhausted, Stopped, TransientError
from harness_worker.ports import Clock, ModelReply, StopSignal
from harness_worker.turn.aside_step import AsideStep
from harness_worker.turn.deciding import Deciding
from harness_worker.turn.model_step import ModelStep
from harness_worker.turn.planner import said_by
from harness_worker.wire import StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Asks the model of a turn's agent, during a visit.

    Args:
        model_step: Builds requests and calls the model.
        clock: This process's monotonic time.
        deciding: Commits what the visit decides.
        turn: The turn as the visit's last commit left it.
        agent: The turn's agent.
        stop: Tells the visit to give up.
    """

    model_step: ModelStep
    clock: Clock
    deciding: Deciding
    turn: Turn
    agent: AgentSpec
    stop: StopSignal

    def ask(self) -> Next | None:
        """Ask for what is due; return what the turn does next, or ``None`` if another visit drives it now.

        Raises:
            TransientError: The store did not answer.
        """
        prompt = self.model_step.prepare(self.turn, self.agent, remaining_s=self._remaining_s(), stop=self.stop)
        kind = due(prompt, self.turn, self.agent)
        return self._ask_aside(prompt, kind) if kind else self._ask_step(prompt)

    def _ask_step(self, prompt: Prompt) -> Next | None:
        remaining_s = self._remaining_s()
        try:
            reply = self.model_step.ask(self.turn, self.agent, prompt, remaining_s=remaining_s, stop=self.stop)
        except ScriptExhausted as error:
            return self.deciding.give_up(StopReason.SCRIPT_EXHAUSTED, str(error))
        except Stopped as stopped:
            return self.deciding.give_up(StopReason.CANCELLED, stopped.said, cause=StopCause.CANCELLED)
        except OutOfTime:
            return self.deciding.give_up(StopReason.DEADLINE, "", cause=StopCause.DEADLINE)
        except (ModelError, TransientError) as error:
            if isinstance(error, PromptTooLong) and compactable(prompt, self.turn):
                return self._sum_up_refused(prompt)
            return self.deciding.give_up(StopReason.MODEL_ERROR, str(error))
        said = self._said(reply, prompt)
        if not said.calls:
            self.deciding.close_idle_gate()
        return self.deciding.commit(partial(plan, visit=self.deciding.visit, said=said))

    def _said(self, reply: ModelReply, prompt: Prompt) -> Said:
        agent = replace(self.agent, tools=callable_tools(self.agent, prompt.tools))
        said = said_by(reply, self.turn, agent, prompt)
        return replace(said, citations=self.deciding.finalizer.citations(self.turn, said.text, prompt))

    def _sum_up_refused(self, prompt: Prompt) -> Next | None:
        """Ask for a summary of a prompt that was refused as too long, in the same visit, which is prolonged for it."""
        try:
            self.model_step.prolong_visit(self.turn)
        except Stopped:  # another visit drives the turn now
            return None
        return self._ask_aside(prompt, RequestKind.COMPACTION)

    def _ask_aside(self, prompt: Prompt, kind: RequestKind) -> Next | None:
        aside_step = AsideStep(
            model_step=self.model_step, agent=self.agent, turn=self.turn, stop=self.stop, clock=self.clock
        )
        try:
            aside = aside_step.ask(prompt, kind, remaining_s=self._remaining_s())
        except Stopped:
            return self.deciding.give_up(StopReason.CANCELLED, "", cause=StopCause.CANCELLED)
        return self.deciding.commit(partial(commit_aside, visit=self.deciding.visit, aside=aside))

    def _remaining_s(self) -> float:
        """What is left of the turn's time, in seconds, counted from when the visit asked for the turn."""
        visit = self.deciding.visit
        return self.turn.deadline_at - visit.now - (self.clock.monotonic() - visit.asked)
