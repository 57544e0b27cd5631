"""Scores and memories of a turn that has ended, each made by its own task of the batch queue.

Also the search for such tasks that were lost.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from harness_worker.core.memory import prompt as memory_prompt
from harness_worker.core.memory.memories import Remembered, scope_of
from harness_worker.core.outcomes import content_of, is_error
from harness_worker.core.prompting.prompt import RequestKind
from harness_worker.core.records import Call, Message, Turn
from harness_worker.core.registration import author_code
from harness_worker.core.registration.author_code import Raised, shown, words_of
from harness_worker.core.registration.judges import TIMEOUT_S, JudgeSpec, Score, score_of
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.scoring.judge_prompt import case_of, system_of, verdict_of
from harness_worker.core.scoring.scores import begin_judging, give, lapse, miss
from harness_worker.core.text import text_of
from harness_worker.core.tool_results import describe
from harness_worker.errors import HarnessError, InvariantError, TransientError
from harness_worker.ports import (
    Clock,
    Dispatcher,
    MemoryStore,
    ModelClient,
    ModelReply,
    ModelRequest,
    Scores,
    TurnStore,
)
from harness_worker.threads.timeouts import OverdueCalls
from harness_worker.turn.model_retries import retrying, wished_s
from harness_worker.turn.model_step import client_for
from harness_worker.turn.results import turn_result
from harness_worker.wire import DEFAULT_SCRIPT, MEMORY

log = logging.getLogger(__name__)

BATCH: Final = 100
RESEND_S: Final = 30.0
"""How long after a message was sent again another one follows, in seconds, if nobody has begun to judge."""

MOST_KNOWN: Final = 50
"""The maximum number of known memories that a model is shown, so as not to find them again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """Has judges score turns, and models extract memories from them; keeps no state of any turn.

    Args:
        store: The journal.
        scores: Knows which scores are due, and stores them.
        judges: The judges that this process serves, by name.
        models: Clients by the prefix of the model's name.
        agents: The agents that this process serves, by name; some have a model that looks for memories.
        memories: The memories so far.
        clock: Times models and their retries.
        overdue: Counts a judge's calls that have not returned in time; with too many of them, no more are started.
    """

    store: TurnStore
    scores: Scores
    judges: Mapping[str, JudgeSpec]
    models: Mapping[str, ModelClient]
    agents: Mapping[str, AgentSpec]
    memories: MemoryStore
    clock: Clock
    overdue: OverdueCalls = field(default_factory=OverdueCalls)

    @property
    def duties(self) -> frozenset[str]:
        """What this process can be asked for: its judges, by name, and :data:`~harness_worker.wire.MEMORY`."""
        remembers = any(agent.memory_model is not None for agent in self.agents.values())
        return frozenset((*self.judges, MEMORY)) if remembers else frozenset(self.judges)

    def judge(self, turn_id: str, name: str) -> None:
        """Have one judge score one turn, if the score is due and not under way. Safe to call any number of times.

        A judge that raises is asked again later, and after the last attempt its error is stored instead of a score.

        Args:
            turn_id: The turn's id.
            name: The judge's name, or :data:`~harness_worker.wire.MEMORY` to look for memories.

        Raises:
            TransientError: The journal did not answer; the score is found to be due again later.
        """
        duty = self._duty(turn_id, name)
        if duty is None:
            log.warning("judge %s of turn %s is not served here", name, turn_id)
            self._lapse(turn_id, name)
            return
        attempt = self.scores.change(turn_id, name, partial(begin_judging, judge_s=duty.timeout_s))
        if attempt is None:
            return
        found: Remembered | None = None
        match author_code.attempt(duty.work):
            case Raised(error=error):
                log.warning("judge %s failed on turn %s (attempt %d): %s", name, turn_id, attempt, shown(error))
                change = partial(miss, attempt=attempt, why=_reason_of(error), wished_s=wished_s(error))
            case (score, found):
                change = partial(give, attempt=attempt, score=score)
        if not self.scores.change(turn_id, name, change, found):
            log.warning("judge %s came too late for turn %s, its score is discarded", name, turn_id)

    def _duty(self, turn_id: str, name: str) -> _Duty | None:
        if name != MEMORY:
            spec = self.judges.get(name)
            return spec and _Duty(timeout_s=spec.timeout_s, work=lambda: (self._score(spec, turn_id), None))
        loaded = self.store.load(turn_id)
        agent = self.agents.get(loaded.turn.agent) if loaded is not None else None
        if loaded is None or agent is None or agent.memory_model is None:
            return None
        turn, model = loaded.turn, agent.memory_model
        return _Duty(timeout_s=TIMEOUT_S, work=lambda: (None, self._remembered(turn, model)))

    def _lapse(self, turn_id: str, name: str) -> None:
        """Give up an old search for memories not served here; judges are only looked for where they are served."""
        loaded = self.store.load(turn_id) if name == MEMORY else None
        if loaded is not None and loaded.turn.finished_at is not None:
            self.scores.change(turn_id, name, partial(lapse, ended_at=loaded.turn.finished_at))

    def _score(self, spec: JudgeSpec, turn_id: str) -> Score:
        loaded = self.store.load(turn_id)
        if loaded is None:
            raise InvariantError(f"there is no turn {turn_id}")
        turn, calls = loaded
        if spec.fn is not None:
            view = turn_result(turn, calls, self.store.history(turn_id))
            returned = self.overdue.within(spec.timeout_s, partial(spec.fn, view), name=f"judge {spec.name}")
            return score_of(returned)
        case = case_of(turn.input, _evidence(turn, calls), turn.output_text)
        request = _request(turn, spec.model or "", system_of(spec.criterion), case, spec.timeout_s)
        script = f"{turn.metadata.get('script', DEFAULT_SCRIPT)}/{spec.name}"
        scripted = replace(request, metadata={**turn.metadata, "script": script})
        return verdict_of(self._answer_of(scripted, f"judge {spec.name} of turn {turn.id}"))

    def _remembered(self, turn: Turn, model: str) -> Remembered:
        """Look for memories in the user's words only, because tools and documents could plant memories."""
        known = self.memories.recall(turn.tenant, scope_of(turn), MOST_KNOWN)
        request = _request(turn, model, memory_prompt.SYSTEM, memory_prompt.case_of(turn.input, known), TIMEOUT_S)
        answer = self._answer_of(replace(request, kind=RequestKind.MEMORY), f"the memory of turn {turn.id}")
        return Remembered(turn=turn, memories=memory_prompt.memories_told(answer))

    def _answer_of(self, request: ModelRequest, what: str) -> str:
        """The model's answer; retried within the request's time if its provider fails in passing."""
        client = client_for(self.models, request.model)
        until = self.clock.monotonic() + request.timeout_s

        def left_s() -> float:
            return until - self.clock.monotonic()

        def fits(pause_s: float) -> bool:
            return pause_s <= left_s() / 2  # the answer needs time too

        def once() -> ModelReply:
            if left_s() <= 0:
                raise TransientError("its time was over before its model could be asked again")
            return client.complete(replace(request, timeout_s=left_s()))

        return text_of(retrying(self.clock.wait, what=what, fits=fits)(once).content)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Duty:
    """What is due for one turn: a score, or its memories.

    Args:
        timeout_s: How long it may take, in seconds.
        work: Computes it.
    """

    timeout_s: float
    work: Callable[[], tuple[Score | None, Remembered | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeLook:
    """Looks, beside the reconciler, for overdue scores, whose messages or judges were lost.

    Args:
        scores: Knows which scores are due.
        dispatcher: Sends judges' messages again.
        duties: What this process can be asked for.
    """

    scores: Scores
    dispatcher: Dispatcher
    duties: frozenset[str]

    def __call__(self) -> None:
        """Send a message for each overdue score.

        Raises:
            TransientError: The journal did not answer.
        """
        if not self.duties:
            return
        for turn_id, judge in self.scores.due(self.duties, BATCH, RESEND_S):
            self.dispatcher.judge(turn_id, judge)


def _evidence(turn: Turn, calls: tuple[Call, ...]) -> list[str]:
    """What the answer could rest on: the context that the model was given, and the results of successful calls."""
    context = turn.preparation.context if turn.preparation is not None else ()
    outcomes = [call.outcome for call in calls if call.outcome is not None]
    return [*context, *(content_of(outcome) for outcome in outcomes if not is_error(outcome))]


def _request(turn: Turn, model: str, system: str, case: str, timeout_s: float) -> ModelRequest:
    return ModelRequest(
        model=model,
        system=system,
        tools=(),
        messages=(Message(role="user", content=case),),
        step=0,
        metadata=turn.metadata,
        timeout_s=timeout_s,
        stop=threading.Event(),
        kind=RequestKind.JUDGE,
    )


def _reason_of(error: BaseException) -> str:
    """Why there is no score, in words for everybody who may read the turn."""
    said = words_of(error) if isinstance(error, HarnessError) else ""
    return said or describe(error)
