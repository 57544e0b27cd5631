"""The engine in one process while its database does not answer: nobody else would look again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from harness_worker.core.registration.effects import Effect
from harness_worker.errors import TransientError
from harness_worker.turn.answering import Approver, nobody
from harness_worker.turn.inline import InlineDispatcher
from harness_worker.turn.results import RequiredAction
from harness_worker.turn.retries import LOOK_AGAIN_S, LOOK_TRIES
from harness_worker.wire import TurnStatus
from tests.unit.builders import NOW
from tests.unit.engine_kit import TURN_ID, Engine, answers, asks, raising

SILENCE = raising(TransientError("no answer"))


def work(engine: Engine, left_behind: Callable[[], Sequence[str]] = tuple, approve: Approver = nobody) -> None:
    """Work the engine's turn."""
    dispatcher = InlineDispatcher(engine.clock, approve, left_behind)
    engine.run_calls_with(dispatcher=dispatcher)
    dispatcher.drive(TURN_ID, replace(engine.coordinator, dispatcher=dispatcher), engine.runner)


@pytest.mark.parametrize(
    ("operation", "earlier"), [("transact", 0), ("load", 0), ("load", 1), ("load", 2), ("beat_calls", 0)]
)
def test_database_that_is_silent_for_a_moment_ends_no_turn(operation: str, earlier: int) -> None:
    """Wherever that is: before a claim, when the turn is read, when a call is kept alive."""
    engine = Engine()
    engine.seen_store.before[operation] += [*[lambda: None] * earlier, SILENCE]
    engine.says(asks("write"), asks("look"), answers("done"))
    work(engine)
    assert (engine.turn.status, engine.turn.output_text) == (TurnStatus.COMPLETED, "done")
    assert engine.ran == ["write", "look"]


@pytest.mark.parametrize("earlier", range(9))
def test_commit_that_was_made_but_not_answered_ends_no_turn(earlier: int) -> None:
    """Whichever it is: what a visit has claimed then is its own at the next look, since nobody else could free it."""
    engine = Engine()
    engine.seen_store.after["transact"] += [*[lambda: None] * earlier, SILENCE]
    engine.says(asks("write"), asks("look"), answers("done"))
    work(engine)
    assert (engine.turn.status, engine.turn.output_text) == (TurnStatus.COMPLETED, "done")
    assert engine.ran == ["write", "look"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_person_is_asked_once_though_the_database_is_silent_about_the_answer(moment: str) -> None:
    """The answer is stored when the database is back, and what it was about has run once."""
    engine = Engine(ask=Effect.NETWORK)
    asked: list[str] = []

    def approve(action: RequiredAction) -> bool:
        if not asked:
            getattr(engine.seen_store, moment)["transact"] += [SILENCE] * 3
        asked.append(action["call_id"])
        return True

    engine.says(asks("ask"), answers("done"))
    work(engine, approve=approve)
    assert (engine.turn.status, asked, engine.ran) == (TurnStatus.COMPLETED, ["0.0"], ["ask"])


def test_database_that_is_silent_about_earlier_turns_ends_no_turn() -> None:
    """Those whose process is gone are looked for at the next look."""
    engine, looked = Engine(), list[str]()

    def left_behind() -> Sequence[str]:
        looked.append("looked")
        if len(looked) == 1:
            raise TransientError("no answer")
        return ()

    engine.says(asks("write"), answers("done"))
    work(engine, left_behind)
    assert engine.turn.status is TurnStatus.COMPLETED


def test_database_that_stays_silent_is_told() -> None:
    """Rather than keep the caller waiting for ever."""
    engine = Engine()
    engine.seen_store.before["load"] += [SILENCE] * LOOK_TRIES
    engine.says(asks("write"))
    with pytest.raises(TransientError, match="no answer"):
        work(engine)
    assert engine.clock.now_s == NOW + (LOOK_TRIES - 1) * LOOK_AGAIN_S
