"""Judging with the real journal, on both databases: each score is written once, whatever happens to its judges."""

from __future__ import annotations

import threading
import time
from asyncio import CancelledError
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from harness_worker import Registry, Score, TurnResult
from harness_worker.adapters.scripted.client import ScriptedModel
from harness_worker.adapters.sql.memories import SqlMemories
from harness_worker.adapters.sql.scores import SqlScores
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.ending import end_turn
from harness_worker.core.memory.memories import Remembered
from harness_worker.core.scoring.scores import ScoreRow, begin_judging
from harness_worker.errors import ModelError, ToolError, TransientError
from harness_worker.ports import ModelReply
from harness_worker.testing.waiting import wait_until
from harness_worker.threads.timeouts import MOST_OVERDUE, OverdueCalls, within
from harness_worker.turn.judging import JudgeLook, Judging
from harness_worker.wire import StopReason, TurnStatus
from tests.contract.store_world import World, new_call
from tests.unit.bad_rules import raise_unshowable
from tests.unit.builders import ended, failed, ok
from tests.unit.engine_kit import Sent, SetClock, Told, ToldModel, answers


@dataclass(slots=True)
class Bench:
    """A turn that has ended, and its judges."""

    world: World
    registry: Registry = field(default_factory=Registry)
    model: ToldModel = field(default_factory=ToldModel)
    clock: SetClock = field(default_factory=SetClock)
    overdue: OverdueCalls = field(default_factory=OverdueCalls)
    turn_id: str = ""

    @property
    def scores(self) -> SqlScores:
        """What they say."""
        return SqlScores(self.world.engine)

    @property
    def judging(self) -> Judging:
        """Has them say it."""
        models = {"": self.model, "scripted": ScriptedModel()}
        return Judging(
            store=self.world.store,
            scores=self.scores,
            judges=self.registry.judges,
            models=models,
            agents=self.registry.agents,
            memories=SqlMemories(self.world.engine),
            clock=self.clock,
            overdue=self.overdue,
        )

    def over(self, **changes: Any) -> None:  # noqa: ANN401 - any field of the turn
        """End a turn that all judges shall score."""
        self.turn_id = self.world.queued(**changes)
        self.world.store.transact(self.turn_id, self._end)

    def judge(self, name: str = "brief") -> ScoreRow:
        """Have one judge at it; its row then."""
        self.judging.judge(self.turn_id, name)
        return self.row(name)

    def row(self, name: str = "brief") -> ScoreRow:
        """What a judge says so far."""
        return next(row for row in self.scores.of_turn(self.turn_id) if row.judge == name)

    def _end(self, snapshot: Snapshot) -> Decision[None]:
        over = end_turn(
            replace(snapshot.turn, output_text="It is shipped."),
            TurnStatus.COMPLETED,
            StopReason.END_TURN,
            now=snapshot.now,
        )
        good, bad = new_call(over.id, 0), new_call(over.id, 1)
        calls = (ended(good, ok(good, "shipped on Monday")), ended(bad, failed(bad)))
        return Decision(result=None, turn=over, calls=calls, judges=tuple(self.registry.judges))


def bench_with(world: World, fn: Callable[[TurnResult], object], **options: Any) -> Bench:  # noqa: ANN401
    """A turn that has ended, with this function as its judge ``brief``."""
    bench = Bench(world)
    bench.registry.judge("brief", fn, **options)
    bench.over()
    return bench


def test_function_is_given_the_whole_turn(world: World) -> None:
    """It gets what the HTTP API shows of the turn, as attributes, with the history."""
    seen: list[TurnResult] = []

    def look(turn: TurnResult) -> Score:
        seen.append(turn)
        return Score(0.5, "so so")

    row = bench_with(world, look).judge()
    assert (row.score, row.reason, row.error, row.attempt, row.due_at) == (0.5, "so so", None, 1, None)
    (turn,) = seen
    assert (turn.output_text, [call.content for call in turn.calls]) == (
        "It is shipped.",
        ["shipped on Monday", "boom"],
    )
    assert turn.messages == ({"role": "user", "content": "Where is my order?"},)


def test_message_that_comes_twice_is_judged_once(world: World) -> None:
    """However often the queue delivers the message, the judge is asked once."""
    told: list[str] = []

    def tell(turn: TurnResult) -> float:
        told.append(turn.id)
        return 1.0

    bench = bench_with(world, tell)
    first, again = bench.judge(), bench.judge()
    assert first == again
    assert told == [bench.turn_id]


def test_judge_that_fails_with_what_cannot_be_shown_is_told_by_its_type(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the line in the log nor the reason of the missing score needs the words of the error."""
    bench = bench_with(world, raise_unshowable)
    assert bench.judge().attempt == 1
    assert "judge brief failed on turn" in caplog.text
    assert "<Unshowable>" in caplog.text


def test_judge_that_resumes_after_another_was_let_in_is_not_heard(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A judge that was stopped for longer than its lease cannot replace the score that another attempt gave."""
    bench = Bench(world)

    def slow(_turn: TurnResult) -> Score:
        bench.scores.change(bench.turn_id, "brief", lease_over)
        bench.scores.change(bench.turn_id, "brief", partial(begin_judging, judge_s=30.0))
        return Score(0.1, "late")

    bench.registry.judge("brief", slow)
    bench.over()
    row = bench.judge()
    assert (row.at, row.score, row.attempt) == (None, None, 2)
    assert "judge brief came too late" in caplog.text


def lease_over(row: ScoreRow, now: float) -> tuple[ScoreRow, None]:
    """Let the lease of the attempt under way end."""
    return replace(row, lease_until=now - 1), None


def due_now(row: ScoreRow, now: float) -> tuple[ScoreRow, None]:
    """Let the lease of the attempt under way end, and make the score due."""
    return replace(row, lease_until=now - 1, due_at=now - 1), None


def test_judge_that_died_is_asked_again_and_writes_one_score(world: World) -> None:
    """If its process is killed between claim and score, the reconciler finds that the score is due."""
    told: list[str] = []
    bench = bench_with(world, lambda turn: told.append(turn.id) or 1.0)
    assert bench.scores.change(bench.turn_id, "brief", partial(begin_judging, judge_s=30.0)) == 1
    assert bench.judge().at is None
    sent = Sent()
    look = JudgeLook(scores=bench.scores, dispatcher=sent, duties=frozenset({"brief"}))
    look()
    assert sent.judged == []
    bench.scores.change(bench.turn_id, "brief", due_now)
    look()
    look()
    assert sent.judged == [(bench.turn_id, "brief")]
    row = bench.judge()
    assert (row.score, row.attempt, told) == (1.0, 2, [bench.turn_id])


def test_worker_without_judges_does_not_look(world: World) -> None:
    """A worker does not look for scores of judges that only other workers serve, either."""
    bench = bench_with(world, lambda _: 1.0)
    bench.scores.change(bench.turn_id, "brief", due_now)
    sent = Sent()
    JudgeLook(scores=bench.scores, dispatcher=sent, duties=frozenset({"kind"}))()
    JudgeLook(scores=None, dispatcher=sent, duties=frozenset())()  # type: ignore[arg-type]
    assert sent.judged == []
    Bench(world).judging.judge(bench.turn_id, "brief")
    assert bench.row().attempt == 0


def leaves(_turn: TurnResult) -> float:
    """A judge that ends its thread."""
    raise SystemExit(3)


def is_cancelled(_turn: TurnResult) -> float:
    """A judge that raises something that is no ``Exception``."""
    raise CancelledError("gone")


def fails(_turn: TurnResult) -> float:
    """A judge that raises."""
    raise ValueError("no idea")


class UnsayableError(Exception):
    """An exception whose text cannot be read."""

    def __str__(self) -> str:
        raise SystemExit(4)


def is_unsayable(_turn: TurnResult) -> float:
    """A judge that raises an exception whose text cannot be read."""
    raise UnsayableError


class MuteError(ToolError):
    """An error of the harness's whose text cannot be read."""

    def __str__(self) -> str:
        raise SystemExit(4)


def is_mute(_turn: TurnResult) -> float:
    """A judge that raises such an error."""
    raise MuteError("")


def tells_a_path(_turn: TurnResult) -> float:
    """A judge that raises an exception whose text names a file."""
    raise OSError(2, "No such file", "/home/ann/secret.txt")


def praises(_turn: TurnResult) -> str:
    """A judge that returns something that is no score."""
    return "good"


@pytest.mark.parametrize(
    ("fn", "error"),
    [
        (fails, "ValueError: no idea"),
        (leaves, "SystemExit: 3"),
        (is_cancelled, "CancelledError: gone"),
        (is_unsayable, "UnsayableError: (no message)"),
        (is_mute, "MuteError: (no message)"),
        (tells_a_path, "FileNotFoundError: [Errno 2] No such file: '<path>'"),
        (praises, "ValueError: a score is a number from 0 to 1, or a Score of it, not 'good'"),
    ],
)
def test_judge_that_keeps_failing_leaves_its_error(
    world: World, fn: Callable[[TurnResult], object], error: str
) -> None:
    """It is asked three times; then its error is stored and nobody asks again."""
    bench = bench_with(world, fn)
    rows = [bench.judge() for _ in range(4)]
    assert [(row.attempt, row.error) for row in rows] == [(1, None), (2, None), (3, error), (3, error)]
    assert rows[2] == rows[3]
    assert (rows[2].score, rows[2].due_at) == (None, None)
    assert (rows[0].due_at or 0.0) < (rows[1].due_at or 0.0)


def test_judge_that_does_not_return_is_left_alone(world: World) -> None:
    """Its attempt ends with its time, and what it returns later is dropped."""
    free = threading.Event()
    bench = bench_with(world, lambda _: float(free.wait(60)), timeout_s=0.1)
    for _ in range(3):
        bench.judge()
    assert bench.row().error == "TimeoutError: no answer within 0.1 s"
    free.set()
    wait_until(lambda: not any(each.name == "within" for each in threading.enumerate()), "the judges to return")
    assert bench.row().score is None


def test_judge_that_never_returns_takes_no_more_than_some_threads(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """This process does not start it for later turns until it returns; their scores stay due meanwhile."""
    free, begun = threading.Event(), list[str]()

    def hang(turn: TurnResult) -> float:
        begun.append(turn.id)
        return float(free.wait(60))

    bench = bench_with(world, hang, timeout_s=0.1)
    for _ in range(MOST_OVERDUE + 2):
        bench.over()
        bench.judge()
    wait_until(lambda: len(begun) == MOST_OVERDUE, "all threads to begin")
    row = bench.row()
    assert (row.attempt, row.error, row.lease_until) == (1, None, None)
    assert (row.due_at or 0.0) > time.time()
    refusal = f"{MOST_OVERDUE} earlier calls of judge brief have not returned"
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
    bench.judge()
    assert bench.judge().error == refusal
    free.set()
    wait_until(lambda: not any(each.name == "within" for each in threading.enumerate()), "the judges to return")
    patient = bench_with(world, hang)
    patient.overdue = bench.overdue
    assert patient.judge().score == 1.0
    assert len(begun) == MOST_OVERDUE + 1


def test_timeout_of_a_judges_own_is_told_as_it_is() -> None:
    """A ``TimeoutError`` that the judge raises is not reported as if its own time had ended."""

    def slow_service() -> None:
        raise TimeoutError("the service")

    with pytest.raises(TimeoutError, match="the service"):
        within(30.0, slow_service)


def test_model_judges_by_criterion_question_evidence_and_answer(world: World) -> None:
    """The model gets no tools, and nothing of failed calls; the JSON of its reply is the score."""
    bench = Bench(world)
    bench.registry.judge("faithfulness", model="judge-model", timeout_s=7.0)
    bench.over(metadata={"script": "s"})
    bench.model.asides.append(answers('{"score": 0.75, "reason": "mostly"}'))
    row = bench.judge("faithfulness")
    assert (row.score, row.reason) == (0.75, "mostly")
    (request,) = bench.model.requests
    assert (request.model, request.tools, request.timeout_s, request.step) == ("judge-model", (), 7.0, 0)
    assert "only what the evidence supports" in request.system
    (message,) = request.messages
    assert message.content == (
        '{"question": "Where is my order?", "evidence": ["shipped on Monday"], "answer": "It is shipped."}'
    )
    assert (request.kind, request.metadata["script"]) == ("judge", "s/faithfulness")


def bench_where(world: World, *said: Told) -> Bench:
    """A turn that has ended, with a model as its judge ``relevance``, which replies this."""
    bench = Bench(world)
    bench.registry.judge("relevance", model="m")
    bench.over()
    bench.model.asides += said
    return bench


@pytest.mark.parametrize("reply", [ModelError("refused"), answers("very good")])
def test_model_that_fails_is_asked_again(world: World, reply: ModelReply | BaseException) -> None:
    """A provider's error, or a reply that is no score, costs one attempt."""
    bench = bench_where(world, reply, answers('{"score": 1}'))
    assert bench.judge("relevance").at is None
    assert bench.judge("relevance").score == 1.0


@pytest.mark.parametrize("wish_s", [None, 1.0, 9.0])
def test_model_that_fails_in_passing_is_asked_again_within_the_judges_time(world: World, wish_s: float | None) -> None:
    """A short rate limit costs no attempt, and no more than the judge's time, as for a turn's model."""
    busy = TransientError("busy", retry_after_s=wish_s)
    bench = bench_where(world, busy, answers('{"score": 1}'))
    began_s = bench.clock.now_s
    row = bench.judge("relevance")
    assert (row.score, row.attempt) == (1.0, 1)
    paused_s = bench.clock.now_s - began_s
    assert (wish_s or 0.5) <= paused_s <= max(wish_s or 0.0, 1.0)
    assert [request.timeout_s for request in bench.model.requests] == [30.0, pytest.approx(30.0 - paused_s)]


def test_model_that_keeps_failing_in_passing_is_asked_again_later(world: World) -> None:
    """Five tries, as far as the judge's time allows, are one attempt."""
    bench = bench_where(world, *[TransientError("busy")] * 5, answers('{"score": 1}'))
    began_s = bench.clock.now_s
    assert bench.judge("relevance").at is None
    assert len(bench.model.requests) == 5
    assert bench.clock.now_s - began_s < 30.0
    row = bench.judge("relevance")
    assert (row.score, row.attempt) == (1.0, 2)


def test_model_that_is_silent_has_no_more_than_the_judges_time(world: World) -> None:
    """The time that a try has used is missing for the next one."""
    bench = bench_where(world)

    def silent() -> ModelReply:
        bench.clock.wait(bench.model.requests[-1].timeout_s)
        raise TransientError("the model's provider did not answer in time")

    bench.model.asides.append(silent)
    assert bench.judge("relevance").at is None
    assert len(bench.model.requests) == 1


def test_provider_that_asks_for_a_longer_pause_than_a_judge_has_is_left_alone(world: World) -> None:
    """Nobody waits for it: the score is due again after the pause."""
    bench = bench_where(world, TransientError("busy", retry_after_s=60.0))
    began_s = bench.clock.now_s
    row = bench.judge("relevance")
    assert (row.at, row.lease_until, bench.clock.now_s) == (None, None, began_s)
    assert 50.0 < (row.due_at or 0.0) - time.time() <= 60.0


def test_models_reply_that_comes_after_the_journal_went_is_found_missing(world: World) -> None:
    """If the database does not answer when the score is stored, that attempt is lost, but not the score."""
    bench = bench_with(world, lambda _: 1.0)

    class Gone(SqlScores):
        """Answers the claim only."""

        claimed = False

        def change(self, turn_id: str, judge: str, rule: Any, found: Remembered | None = None) -> Any:  # noqa: ANN401
            """See ``ports.Scores.change``."""
            if self.claimed:
                raise TransientError("away")
            self.claimed = True
            return super().change(turn_id, judge, rule, found)

    with pytest.raises(TransientError):
        replace(bench.judging, scores=Gone(world.engine)).judge(bench.turn_id, "brief")
    assert bench.judge().at is None
    bench.scores.change(bench.turn_id, "brief", lease_over)
    assert bench.judge().score == 1.0
