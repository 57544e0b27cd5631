"""What tasks do with a message before anything of the harness sees it."""

from __future__ import annotations

import errno
from asyncio import CancelledError
from types import SimpleNamespace
from typing import Any, cast

import pytest
from celery import Task
from celery.exceptions import Ignore, Reject

from harness_worker.adapters.celery import tasks
from harness_worker.adapters.celery.app import make_app
from harness_worker.adapters.celery.tasks import AdvanceTask, JudgeTask, SubmitTask, ThreadTask, ToolTask
from harness_worker.config import Settings
from harness_worker.errors import TransientError
from harness_worker.turn.running.job import Canvas
from harness_worker.wire import ToolMessage

NEWER = {"v": 2, "turn_id": "t", "call_id": "0.0", "attempt": 1, "read": False, "tenant": "default", "more": 1}


@pytest.mark.parametrize(
    ("kwargs", "said"), [(NEWER, "left to a newer worker"), ({**NEWER, "v": 1}, "dropped"), ({}, "dropped")]
)
def test_message_that_is_not_for_this_worker_starts_nothing(
    kwargs: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is run, failed or told to the gate: the canvas stays where it is, and the next look-in sends the call."""
    task = ToolTask("look", cast("Any", None), cast("Any", None))
    with pytest.raises(Ignore):
        task.run(**kwargs)
    assert said in caplog.text


def test_call_that_is_not_over_keeps_its_canvas() -> None:
    """Or the turn would go on without the call's result."""
    canvases = [Canvas.CONTINUES, Canvas.STAYS]
    runner: Any = SimpleNamespace(run=lambda _job: canvases.pop())  # pyright: ignore[reportUnknownLambdaType]
    task = _registered(ToolTask("look", runner, cast("Any", None)))
    message = ToolMessage(turn_id="t", call_id="0.0", attempt=1, read=False, tenant="default").to_kwargs()
    with pytest.raises(Ignore):
        task.run(**message)
    assert task.run(**message) == "0.0"


class _Judging:
    """Notes what it is asked to judge; the journal does not answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def judge(self, turn_id: str, name: str) -> None:
        """See ``Judging.judge``."""
        self.asked.append((turn_id, name))
        raise TransientError("away")


@pytest.mark.parametrize("args", [(), ("t",), ("t", 7), (b"t", "brief"), ("t", "brief", "more")])
def test_message_that_is_no_judges_is_dropped(args: tuple[object, ...], caplog: pytest.LogCaptureFixture) -> None:
    """Nothing in a queue ends a worker."""
    judging = _Judging()
    task = JudgeTask(cast("Any", judging))
    task.run(*args)
    task.run("t", "brief", more=1)
    assert judging.asked == []
    assert "dropped" in caplog.text


@pytest.mark.parametrize("args", [(), (7,), (None,), ({"a": 1},), ("t", "more")])
def test_message_that_is_no_wake_up_is_dropped(args: tuple[object, ...], caplog: pytest.LogCaptureFixture) -> None:
    """No turn is looked at for it."""
    task = AdvanceTask(cast("Any", None))
    task.run(*args)
    task.run("t", more=1)
    assert caplog.text.count("dropped") == 2


def test_judge_whose_journal_is_away_is_left_to_the_reconciler(caplog: pytest.LogCaptureFixture) -> None:
    """The row says that it is due; the message need not."""
    judging = _Judging()
    JudgeTask(cast("Any", judging)).run("t", "brief")
    assert judging.asked == [("t", "brief")]
    assert "the reconciler will see to it: away" in caplog.text


class _Leaving:
    """A coordinator, judging and submitting in which something raises."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def judge(self, *_: object) -> None:
        """See ``Judging.judge``."""
        raise self._error

    advance = submit = run = judge


@pytest.mark.parametrize("error", [CancelledError(), GeneratorExit(), KeyboardInterrupt(), SystemExit(3)])
def test_task_of_a_thread_fails_whatever_is_raised_in_it(error: BaseException) -> None:
    """Celery's thread pool would lose it: neither acknowledged nor failed, its place taken for good."""
    task = _registered(JudgeTask(cast("Any", _Leaving(error))))
    failed = task.apply(args=("t", "brief"))
    assert failed.state == "FAILURE"
    assert str(failed.result) == f"turn.judge was left by {error!r}, which ends no thread"


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.EMFILE, "Too many open files")])
def test_lack_of_something_leaves_a_turn_to_the_reconciler(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """Celery does not acknowledge the message of a task that raises a ``MemoryError``: its place would be taken."""
    away: Any = _Leaving(error)
    AdvanceTask(away).run("t")
    JudgeTask(away).run("t", "brief")
    assert caplog.text.count(f"the reconciler will see to it: the system failed: {error!r}") == 2


class _ShortOfMemory(ThreadTask):
    """A task that meets a lack of memory outside of what it does."""

    name = "short"

    def run(self) -> None:
        """Meet it."""
        raise MemoryError


def test_task_of_a_thread_never_fails_with_a_lack_of_memory() -> None:
    """Wherever it was met."""
    task = _registered(_ShortOfMemory())
    assert type(task.apply().result) is TransientError


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.EIO, "Input/output error")])
def test_task_that_fails_for_the_system_is_logged_in_one_line(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """A traceback would make operators look for a bug."""
    away: Any = _Leaving(error)
    message = ToolMessage(turn_id="t", call_id="0.0", attempt=1, read=True, tenant="default").to_kwargs()
    tool, short = _registered(ToolTask("look", away, cast("Any", None))), _registered(_ShortOfMemory())
    with caplog.at_level("INFO"):
        states = [tool.apply(kwargs=message).state, short.apply().state]
    assert states == ["FAILURE", "FAILURE"]
    assert [record.exc_info for record in caplog.records if "raised" in record.message] == [None, None]


@pytest.mark.parametrize("error", [TransientError("away"), MemoryError()])
def test_turn_that_cannot_be_stored_goes_back_to_its_queue(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else knows of it yet. It waits a moment, or it would come again and again without a pause."""
    waits: list[float] = []
    monkeypatch.setattr(tasks, "Event", lambda: SimpleNamespace(wait=waits.append))
    task = _registered(SubmitTask(cast("Any", _Leaving(error))))
    with pytest.raises(Reject) as rejected:
        task.run(agent="a", input="i")
    assert cast("Any", rejected.value).requeue is True
    assert waits == [tasks.AWAY_S]


def _registered(task: Task[Any, Any]) -> Any:  # noqa: ANN401 - Celery's task, its parts untyped
    """The task of an app with a worker's settings: some stay with its class, for all later tests."""
    app = make_app(Settings(), redis_url="memory://", broker_url="memory://")
    return app.register_task(task)
