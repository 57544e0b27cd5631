"""Asking the model for one reply, with retries that stay invisible."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from tenacity import Retrying

from harness_worker.core.prompting.past import PastTurn
from harness_worker.core.prompting.prompt import NOTHING, Prompt, RequestKind, is_unprepared, known_preparation, prepare
from harness_worker.core.prompting.tool_selection import kept, selects
from harness_worker.core.records import Turn
from harness_worker.core.registration.hooks import StreamChunk, overrides
from harness_worker.core.registration.tools import AgentSpec, ToolSpec
from harness_worker.core.visits import MODEL_SLACK_S, prolong
from harness_worker.errors import ModelError, OutOfTime, Stopped, TransientError
from harness_worker.ports import Clock, ModelClient, ModelReply, ModelRequest, StopSignal, TurnStore, ignore
from harness_worker.turn.deltas import Deltas, Hint
from harness_worker.turn.gathering import Gathering
from harness_worker.turn.hooking import HookCaller, turn_fields
from harness_worker.turn.model_retries import retrying
from harness_worker.turn.tool_selector import ToolSelector

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStep:
    """Builds the request from the journal and calls the model of the agent.

    Args:
        store: The journal, which has the history.
        models: Clients by the prefix of the model's name: ``"scripted"`` serves ``"scripted:FILE"``; ``""`` the rest.
        clock: Times the backoff and the deadline.
        timeout_s: The longest that a single call may take, in seconds.
        hint: Shows watchers the text while the model says it.
        hooks: Calls the agents' hooks.
        artifact_reader: The tool that is offered to a session with artifacts.
        gathering: Loads memories and documents; ``None`` if no agent has any.
        selector: Chooses among the tools of agents that have many.
    """

    store: TurnStore
    models: Mapping[str, ModelClient]
    clock: Clock
    timeout_s: float
    hint: Hint
    hooks: HookCaller
    artifact_reader: ToolSpec
    gathering: Gathering | None
    selector: ToolSelector

    def prepare(self, turn: Turn, agent: AgentSpec, *, remaining_s: float, stop: StopSignal) -> Prompt:
        """Build the turn's next prompt from the journal; the first one includes memories and documents.

        Raises:
            TransientError: The store did not answer.
        """
        past = self.store.past(turn) if _has_past(turn) else ()
        own = self.store.history(turn.id)
        gathered = NOTHING
        if self.gathering is not None and is_unprepared(turn):
            gathered = self.gathering.gather(turn, agent, remaining_s=remaining_s, stop=stop)
        selected = self._selected(turn, agent, past)
        reader = self.artifact_reader
        return prepare(turn, agent, past=past, own=own, artifact_reader=reader, gathered=gathered, selected=selected)

    def _selected(self, turn: Turn, agent: AgentSpec, past: Sequence[PastTurn]) -> tuple[str, ...]:
        """The names of the tools that the session is offered; empty for an agent that offers all of its tools."""
        if not selects(agent):
            return ()
        return kept(agent, known_preparation(turn, past)) or self.selector.choose(agent, turn.input)

    def ask(self, turn: Turn, agent: AgentSpec, prompt: Prompt, *, remaining_s: float, stop: StopSignal) -> ModelReply:
        """Get one reply; the text of a step, but not of an aside, is shown to watchers meanwhile.

        Raises:
            OutOfTime: The turn's time ended first.
            TransientError: The provider kept failing.
            ModelError: The provider refused, or failed for good.
            ScriptExhausted: The script has no such step.
            Stopped: ``stop`` was set, or another visit drives the turn now.
        """
        client = client_for(self.models, agent.model)
        deadline = self.clock.monotonic() + remaining_s
        attempts = count(1)

        def once() -> ModelReply:
            left_s = self._left_s(deadline)
            attempt = next(attempts)
            deltas = Deltas(self.hint, self.clock, turn_id=turn.id, step=turn.step, attempt=attempt)
            on_text = self._listeners(turn, agent, deltas, attempt) if prompt.kind is RequestKind.STEP else ignore
            request = _request(turn, agent, prompt, timeout_s=min(left_s, self.timeout_s), stop=stop, on_text=on_text)
            try:
                return client.complete(request)
            finally:
                deltas.flush()

        try:
            return self._retrying(turn, deadline, stop)(once)
        except TransientError:
            self._left_s(deadline)
            raise

    def _listeners(self, turn: Turn, agent: AgentSpec, deltas: Deltas, attempt: int) -> Callable[[str], None]:
        hooks = [hook for hook in agent.hooks if overrides(hook, "on_stream_chunk")]
        if not hooks:
            return deltas.take

        def on_text(text: str) -> None:
            deltas.take(text)
            chunk = StreamChunk(**turn_fields(turn), step=turn.step, attempt=attempt, text=text)
            self.hooks.tell(hooks, "on_stream_chunk", chunk)

        return on_text

    def _left_s(self, deadline: float) -> float:
        left_s = deadline - self.clock.monotonic()
        if left_s <= 0:
            raise OutOfTime
        return left_s

    def _retrying(self, turn: Turn, deadline: float, stop: StopSignal) -> Retrying:
        def nap(seconds: float) -> None:
            self.prolong_visit(turn, pause_s=seconds)
            if stop.wait(min(seconds, max(0.0, deadline - self.clock.monotonic()))):
                raise Stopped

        return retrying(nap, what=f"turn {turn.id}")

    def prolong_visit(self, turn: Turn, *, pause_s: float = 0.0) -> None:
        """Make the visit last for the pause and another call; to be called before each call except the first.

        Raises:
            Stopped: The visit no longer holds the turn.
        """
        visit_s = pause_s + self.timeout_s + MODEL_SLACK_S
        try:
            holds = self.store.transact(turn.id, partial(prolong, turn=turn, visit_s=visit_s))
        except TransientError as error:
            log.warning("visit of turn %s not prolonged: %s", turn.id, error)
            return
        if not holds:
            raise Stopped


def _has_past(turn: Turn) -> bool:
    """Whether earlier turns matter: there are some, and the turn has no summary of its own that replaces them."""
    return turn.carried is None and (turn.number > 1 or turn.forked_from is not None)


def _request(
    turn: Turn,
    agent: AgentSpec,
    prompt: Prompt,
    *,
    timeout_s: float,
    stop: StopSignal,
    on_text: Callable[[str], None],
) -> ModelRequest:
    return ModelRequest(
        model=agent.model,
        system=prompt.system,
        tools=prompt.tools,
        messages=prompt.messages,
        step=turn.step,
        metadata=turn.metadata,
        timeout_s=timeout_s,
        stop=stop,
        on_text=on_text,
        kind=prompt.kind,
        think=agent.think,
        max_tokens=prompt.max_tokens,
    )


def client_for(models: Mapping[str, ModelClient], model: str) -> ModelClient:
    """The client that serves a model, chosen by the prefix of the model's name.

    Raises:
        ModelError: No client serves it.
    """
    prefix = model.partition(":")[0] if ":" in model else ""
    client = models.get(prefix) or models.get("")
    if client is None:
        raise ModelError(f"no client serves the model {model!r}; known: {', '.join(sorted(models))}")
    return client
