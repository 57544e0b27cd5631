"""Judging a turn that is over: one task of the batch queue a judge, and the look for those that were lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from harness_worker.core.judge_prompt import case_of, system_of, verdict_of
from harness_worker.core.judges import JudgeSpec, Score, score_of
from harness_worker.core.outcomes import content_of, is_error
from harness_worker.core.records import Call, Message, Turn
from harness_worker.core.scores import claim, give, miss
from harness_worker.errors import HarnessError, InvariantError
from harness_worker.ports import Dispatcher, ModelClient, ModelRequest, RequestKind, Scores, TurnStore
from harness_worker.turn.model_step import client_for
from harness_worker.turn.results import turn_result

log = logging.getLogger(__name__)

T = TypeVar("T")

BATCH: Final = 100
RESEND_S: Final = 30.0
"""How long after a message was sent again the next one is, if nobody began to judge."""

DEFAULT_SCRIPT: Final = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """Has judges say their word; holds nothing of any turn.

    Args:
        store: The journal.
        scores: Where their words are due, and go.
        judges: What this process serves, by name.
        models: Clients by the prefix of the model's name.
    """

    store: TurnStore
    scores: Scores
    judges: Mapping[str, JudgeSpec]
    models: Mapping[str, ModelClient]

    def judge(self, turn_id: str, name: str) -> None:
        """Have one judge score one turn, if that is due and nobody is at it. Safe to call any number of times.

        What a judge raises is no score: it is asked again later, and at last its error is written instead.

        Raises:
            TransientError: The journal did not answer; somebody looks again.
        """
        spec = self.judges.get(name)
        if spec is None:
            log.warning("judge %s of turn %s is not served here", name, turn_id)
            return
        attempt = self.scores.change(turn_id, name, partial(claim, judge_s=spec.timeout_s))
        if attempt is None:
            return
        try:
            said = partial(give, attempt=attempt, score=self._score(spec, turn_id))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a judge is the application's code
            log.warning("judge %s failed on turn %s (attempt %d): %r", name, turn_id, attempt, error)
            said = partial(miss, attempt=attempt, why=_told(error))
        if not self.scores.change(turn_id, name, said):
            log.warning("judge %s came too late for turn %s, its word is dropped", name, turn_id)

    def _score(self, spec: JudgeSpec, turn_id: str) -> Score:
        loaded = self.store.load(turn_id)
        if loaded is None:
            raise InvariantError(f"there is no turn {turn_id}")
        turn, calls = loaded
        if spec.fn is None:
            return self._asked(spec, turn, calls)
        view = turn_result(turn, calls, self.store.history(turn_id))
        return score_of(within(spec.timeout_s, partial(spec.fn, view)))

    def _asked(self, spec: JudgeSpec, turn: Turn, calls: tuple[Call, ...]) -> Score:
        model = spec.model or ""
        case = case_of(turn.input, _evidence(turn, calls), turn.output_text)
        script = turn.metadata.get("script", DEFAULT_SCRIPT)
        request = ModelRequest(
            model=model,
            system=system_of(spec.criterion),
            tools=(),
            messages=(Message(role="user", content=case),),
            step=0,
            metadata={**turn.metadata, "script": f"{script}/{spec.name}"},
            timeout_s=spec.timeout_s,
            stop=threading.Event(),
            kind=RequestKind.JUDGE,
        )
        reply = client_for(self.models, model).complete(request)
        return verdict_of("".join(str(block["text"]) for block in reply.content if block.get("type") == "text"))


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeLook:
    """Looks for scores that are overdue, beside the reconciler: their messages or their judges were lost.

    Args:
        scores: Knows what is due.
        dispatcher: Sends the judges again.
        judges: Those that this process serves.
    """

    scores: Scores
    dispatcher: Dispatcher
    judges: frozenset[str]

    def __call__(self) -> None:
        """Send what is overdue once.

        Raises:
            TransientError: The journal did not answer.
        """
        if not self.judges:
            return
        for turn_id, judge in self.scores.due(self.judges, BATCH, RESEND_S):
            self.dispatcher.judge(turn_id, judge)


def within(seconds: float, work: Callable[[], T]) -> T:
    """What ``work`` returns or raises, on a thread of its own.

    Raises:
        TimeoutError: It took longer. A thread cannot be stopped: it is left alone, and what it says is dropped.
    """
    said: Future[T] = Future()

    def run() -> None:
        try:
            said.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again for who waits
            said.set_exception(error)

    threading.Thread(target=run, name="judge", daemon=True).start()
    try:
        return said.result(seconds)
    except TimeoutError:
        if said.done():
            raise
        raise TimeoutError(f"no answer within {seconds:g} s") from None


def _evidence(turn: Turn, calls: tuple[Call, ...]) -> list[str]:
    """What the answer could rest on: the context that the turn was sent with, and what its calls returned."""
    context = turn.preparation.context if turn.preparation is not None else ()
    outcomes = [call.outcome for call in calls if call.outcome is not None]
    return [*context, *(content_of(outcome) for outcome in outcomes if not is_error(outcome))]


def _told(error: BaseException) -> str:
    if isinstance(error, HarnessError):
        return str(error)
    return f"{type(error).__name__}: {error}"
