"""Asking the model for an aside, which always has a result."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness_worker.core.asides import (
    Aside,
    AsideAnswer,
    answer_in,
    aside_prompt,
    compacted,
    compaction,
    failed,
    reflection,
    refused,
    shortened,
    timed_out,
)
from harness_worker.core.gates import MODEL_FLOOR_S, floor_of
from harness_worker.core.prompting.prompt import Prompt, RequestKind
from harness_worker.core.records import Turn
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.text import text_of
from harness_worker.errors import ModelError, OutOfTime, PromptTooLong, ScriptExhausted, TransientError
from harness_worker.ports import Clock, ModelReply, StopSignal
from harness_worker.turn.model_step import ModelStep


@dataclass(frozen=True, slots=True, kw_only=True)
class AsideStep:
    """Asks for a reflection or for a summary of the history.

    Args:
        model_step: Builds requests and calls the model.
        agent: The turn's agent.
        turn: The turn, which this visit holds.
        stop: Tells the visit to give up.
        clock: This process's monotonic time.
    """

    model_step: ModelStep
    agent: AgentSpec
    turn: Turn
    stop: StopSignal
    clock: Clock

    def ask(self, prompt: Prompt, kind: RequestKind, *, remaining_s: float) -> Aside:
        """The aside's result, which says why if there is no usable answer.

        Args:
            prompt: The prompt of the turn's next step, as it would be sent now.
            kind: The kind of aside.
            remaining_s: What is left of the turn's time, in seconds.

        Raises:
            Stopped: ``stop`` was set, or somebody else drives the turn now.
            TransientError: The store did not answer.
        """
        answer = refused(self.turn, kind, remaining_s=remaining_s) or self._answer(prompt, kind, remaining_s)
        if kind is RequestKind.REFLECTION:
            return reflection(prompt, self.turn, answer)
        return compaction(prompt, self.turn, answer, self._after(prompt, answer))

    def _answer(self, prompt: Prompt, kind: RequestKind, remaining_s: float) -> AsideAnswer:
        """The model's answer, given early enough to leave the step the time that it needs."""
        asked = aside_prompt(prompt, self.turn, kind, self.agent)
        most_s = remaining_s - floor_of(self.turn, MODEL_FLOOR_S)
        try:
            reply = self._reply(asked, most_s)
        except OutOfTime:
            return timed_out(kind)
        except (ModelError, ScriptExhausted, TransientError) as error:
            return failed(str(error), kind)
        return answer_in(text_of(reply.content), reply.stop_reason, reply.usage, kind)

    def _reply(self, asked: Prompt, most_s: float) -> ModelReply:
        """The model's reply to the whole history or, if a summary is wanted of too long a one, to shortened results."""
        began = self.clock.monotonic()
        try:
            return self.model_step.ask(self.turn, self.agent, asked, remaining_s=most_s, stop=self.stop)
        except PromptTooLong:
            if asked.kind is not RequestKind.COMPACTION:
                raise
        self.model_step.prolong_visit(self.turn)
        left_s = most_s - (self.clock.monotonic() - began)
        return self.model_step.ask(self.turn, self.agent, shortened(asked), remaining_s=left_s, stop=self.stop)

    def _after(self, prompt: Prompt, answer: AsideAnswer) -> Prompt:
        if answer.is_stub:
            return prompt
        summed_up = replace(self.turn, preparation=compacted(prompt, self.turn, answer), carried=prompt.carried)
        return self.model_step.prepare(summed_up, self.agent, remaining_s=0.0, stop=self.stop)
