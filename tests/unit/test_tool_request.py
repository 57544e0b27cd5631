"""What a tool worker's parent process says of a call whose process is gone, as Celery's pool tells it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from weakref import WeakSet

import pytest
from billiard.einfo import ExceptionInfo
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from billiard.pool import ApplyResult, TimeoutHandler
from celery.exceptions import Ignore
from celery.worker import state
from celery.worker.request import Request
from kombu.exceptions import OperationalError

from harness_worker.adapters.celery import requests
from harness_worker.adapters.celery.app import make_app
from harness_worker.adapters.celery.requests import (
    SubmitRequest,
    ToolRequest,
    active_calls,
    active_calls_of,
    active_calls_of_turn,
)
from harness_worker.adapters.celery.stopping import stop_tools
from harness_worker.adapters.celery.tasks import SubmitTask, ToolTask
from harness_worker.config import Settings
from harness_worker.ports import RunningCall
from harness_worker.wire import ToolMessage

MESSAGE = ToolMessage(turn_id="turn_1", call_id="0.0", attempt=2, read=True, tenant="default")
RUN = RunningCall(turn_id="turn_1", call_id="0.0", attempt=2, runner="tools@here/4711")


@pytest.fixture
def told() -> list[tuple[RunningCall, bool]]:
    """The calls whose processes were said to be gone, and whether because their time was over."""
    return []


@pytest.fixture
def acknowledged() -> list[tuple[object, ...]]:
    """The messages that were acknowledged."""
    return []


@pytest.fixture
def started(told: list[tuple[RunningCall, bool]], acknowledged: list[tuple[object, ...]]) -> Any:  # noqa: ANN401 - Celery's request, its parts untyped
    """A started call's request in the parent process."""
    task = ToolTask("look", cast("Any", None), lambda run, overran: told.append((run, overran)))

    def acknowledge(*of_message: object) -> None:
        acknowledged.append(of_message)

    return request(ToolRequest, task, MESSAGE.to_kwargs(), on_ack=acknowledge)


def request(
    kind: type[Request],
    task: Any,  # noqa: ANN401 - as above
    kwargs: dict[str, Any],
    *,
    shown_as: Mapping[str, str] | None = None,
    **options: Any,  # noqa: ANN401 - as above
) -> Any:  # noqa: ANN401 - as above
    """The request of a message to this task, in the parent of the process that runs it.

    ``shown_as`` has headers with which a producer says what people are to be shown of the message.
    """
    app = make_app(Settings(), redis_url="memory://", broker_url="memory://")
    app.conf.update(result_backend="disabled")
    app.register_task(task)
    body: tuple[Any, ...] = ([], kwargs, {})
    headers = {"id": "0.0-2", "task": task.name, "timelimit": [None, 2.5], **(shown_as or {})}
    message = SimpleNamespace(headers=headers, body=body, payload=body, delivery_info={}, properties={})
    message.content_type, message.content_encoding = "application/json", "utf-8"
    made: Any = kind(message, app=app, task=task, hostname="tools@here", decoded=True, **options)
    made.worker_pid = 4711
    return made


def test_process_ended_at_the_hard_limit_had_its_whole_time(started: Any, told: list[tuple[RunningCall, bool]]) -> None:  # noqa: ANN401 - as above
    """The pool reports the failure before it ends the process: it is ended first, and then told to have overrun."""
    process = subprocess.Popen(["sleep", "60"], process_group=0)
    started.worker_pid = process.pid
    pool_job: Any = ApplyResult({}, None, error_callback=started.on_failure, timeout_callback=started.on_timeout)
    pool_job._timeout = 2.5
    TimeoutHandler([], {}, None, None).on_hard_timeout(pool_job)
    assert process.wait(10) == -signal.SIGKILL
    assert told == [(replace(RUN, runner=f"tools@here/{process.pid}"), True)]


@pytest.mark.parametrize("is_known", [True, False])
def test_failure_at_the_hard_limit_is_heard_though_there_is_no_process_to_end(
    started: Any,  # noqa: ANN401 - as above
    told: list[tuple[RunningCall, bool]],
    acknowledged: list[tuple[object, ...]],
    is_known: bool,
) -> None:
    """It may have ended at the same moment. Unheard, the message would stay, and its place never be free again."""
    process = subprocess.Popen(["true"], process_group=0)
    assert process.wait(10) == 0
    started.worker_pid = process.pid if is_known else None
    with pytest.raises(TimeLimitExceeded) as over:
        raise TimeLimitExceeded(2.5)
    started.on_failure(ExceptionInfo((over.type, over.value, over.tb)), return_ok=True)
    expected = [(replace(RUN, runner=f"tools@here/{process.pid}"), True)]
    assert (told, len(acknowledged)) == (expected if is_known else [], 1)


def test_failure_at_the_hard_limit_is_told_by_its_name(started: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401 - as above
    """Watchers read which error it was, not what Celery wraps it in."""
    told: list[Mapping[str, Any]] = []

    def send(_type: str, **fields: object) -> None:
        told.append(fields)

    monkeypatch.setattr(started, "_eventer", SimpleNamespace(enabled=True, send=send))
    monkeypatch.setattr(started, "worker_pid", None)
    pool_job: Any = ApplyResult({}, None, error_callback=started.on_failure, timeout_callback=started.on_timeout)
    pool_job._timeout = 2.5
    TimeoutHandler([], {}, None, None).on_hard_timeout(pool_job)
    assert {event["exception"] for event in told} == {"billiard.exceptions.TimeLimitExceeded: TimeLimitExceeded(2.5,)"}


def test_process_that_died_is_lost(started: Any, told: list[tuple[RunningCall, bool]]) -> None:  # noqa: ANN401 - as above
    """A process that died of itself had not its whole time."""
    with pytest.raises(WorkerLostError) as died:
        raise WorkerLostError("Worker exited prematurely: signal 9 (SIGKILL)")
    started.on_failure(ExceptionInfo((died.type, died.value, died.tb)))
    assert told == [(RUN, False)]


@pytest.mark.parametrize("left", [OperationalError("Connection refused."), Ignore()], ids=["not sent on", "stays"])
def test_process_that_did_not_send_its_canvas_on_lives(
    started: Any,  # noqa: ANN401 - as above
    told: list[tuple[RunningCall, bool]],
    left: Exception,
) -> None:
    """Whether it could not, or was not to: it goes on, and nobody is told of a death."""
    with pytest.raises(type(left)) as raised:
        raise left
    pipe = subprocess.PIPE
    with subprocess.Popen(["cat"], stdin=pipe, stdout=pipe, bufsize=0, process_group=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        started.worker_pid = process.pid
        started.on_failure(ExceptionInfo((raised.type, raised.value, raised.tb)), return_ok=True)
        process.stdin.write(b"lives\n")
        assert process.stdout.readline() == b"lives\n"
    assert told == []


def test_calls_under_way_are_found_though_others_begin_and_end_meanwhile(
    started: Any,  # noqa: ANN401 - as above
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Threads that beat or stop calls walk through a set that the main thread changes."""
    changes = [RuntimeError("Set changed size during iteration")]

    class Changing(WeakSet[Any]):
        def __iter__(self) -> Iterator[Any]:
            if changes:
                raise changes.pop()
            return super().__iter__()

    monkeypatch.setattr(state, "active_requests", Changing([started]))
    assert active_calls_of_turn("turn_1") == [RUN]


def test_calls_under_way_are_told_apart(started: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401 - as above
    """Reads keep alive by the gate, writes by the journal, and calls that hold a lock by the locks.

    A message that is not one of ours may be under way for a moment, until its process drops it.
    """
    message = replace(MESSAGE, turn_id="turn_2", read=False)
    writing = request(ToolRequest, ToolTask("put", cast("Any", None), print), message.to_kwargs())
    submitting = request(SubmitRequest, SubmitTask(cast("Any", None)), {})
    odd = request(ToolRequest, ToolTask("look", cast("Any", None), print), {"n": 1})
    monkeypatch.setattr(state, "active_requests", WeakSet([started, writing, submitting, odd]))
    assert active_calls(reads=True) == active_calls_of(["look"]) == active_calls_of_turn("turn_1") == [RUN]
    assert active_calls(reads=False) == active_calls_of(["put"]) == [replace(RUN, turn_id="turn_2")]


def test_process_that_ended_the_call_in_time_is_not_killed_for_it(
    started: Any,  # noqa: ANN401 - as above
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may run a call of another turn by then."""
    later: list[Callable[[], None]] = []

    def call_later(_s: float, _call_soon: object, work: Callable[..., None], *args: object) -> None:
        later.append(partial(work, *args))

    hub = SimpleNamespace(call_later=call_later, call_soon=None)
    deaf = ["sh", "-c", "trap '' USR1; exec cat"]
    with subprocess.Popen(deaf, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"begun\n")
        assert process.stdout.readline() == b"begun\n"
        started.worker_pid = process.pid
        monkeypatch.setattr(state, "active_requests", WeakSet([started]))
        stop_tools(SimpleNamespace(consumer=SimpleNamespace(hub=hub)), "turn_1")
        (kill_unresponsive,) = later
        state.active_requests.clear()
        kill_unresponsive()
        process.stdin.write(b"lives\n")
        assert process.stdout.readline() == b"lives\n"
        state.active_requests.add(started)
        kill_unresponsive()
        assert process.wait(10) == -signal.SIGKILL


def test_nobody_is_shown_what_a_turn_is_told() -> None:
    """``celery inspect`` asks for the arguments of tasks as they are, and a turn's are its user's words."""
    words = {"agent": "support", "input": "my secret"}
    shown_as = {"shadow": "my secret", "argsrepr": "('my secret',)", "kwargsrepr": repr(words)}
    submitting = request(SubmitRequest, SubmitTask(cast("Any", None)), words, shown_as=shown_as)
    assert submitting.info()["kwargs"] == "{'turn': '0.0-2'}"
    assert "secret" not in repr(submitting.info())
    assert "secret" not in str(submitting)


def test_process_that_was_short_of_memory_does_not_end_its_parent(
    started: Any,  # noqa: ANN401 - as above
    told: list[tuple[RunningCall, bool]],
    acknowledged: list[tuple[object, ...]],
) -> None:
    """Celery would raise it there, which stops the worker and every call in it; only this one has failed."""
    with pytest.raises(MemoryError) as short:
        raise MemoryError
    started.on_failure(ExceptionInfo((short.type, short.value, short.tb)), return_ok=True)
    assert (told, len(acknowledged)) == ([(RUN, False)], 1)


@pytest.mark.parametrize(("kwargs", "pid"), [(MESSAGE.to_kwargs(), None), ({"read": True}, 4711)])
def test_celery_hears_of_a_failure_of_which_nobody_is_told(
    told: list[tuple[RunningCall, bool]], kwargs: dict[str, Any], pid: int | None
) -> None:
    """No call can have been lost with a process if none had begun, or if the message names no call."""
    given_back: list[object] = []

    def give_back(*of_message: object) -> None:
        given_back.append(of_message)

    task = ToolTask("look", cast("Any", None), lambda run, overran: told.append((run, overran)))
    failed = request(ToolRequest, task, kwargs, on_reject=give_back)
    failed.worker_pid = pid
    with pytest.raises(WorkerLostError) as died:
        raise WorkerLostError("Worker exited prematurely: signal 9 (SIGKILL)")
    failed.on_failure(ExceptionInfo((died.type, died.value, died.tb)))
    assert (told, len(given_back)) == ([], 1)


@pytest.mark.parametrize(
    ("short", "named"), [("on_lost", "call 0.0 of turn turn_1"), ("_running_call", "tool.look[0.0-2]"), ("log", "")]
)
def test_celery_hears_of_a_death_that_could_not_be_told(
    started: Any,  # noqa: ANN401 - as above
    short: str,
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Else the message is never given back, and its place in the worker never free again."""
    given_back: list[object] = []

    def fail(*_: object) -> None:
        raise MemoryError

    def give_back(*of_message: object) -> None:
        given_back.append(of_message)

    monkeypatch.setattr(started, "_on_reject", give_back)
    if short == "on_lost":
        monkeypatch.setattr(started.task, "on_lost", fail)
    else:
        monkeypatch.setattr(requests, "_running_call", fail)
    if short == "log":
        monkeypatch.setattr(requests.log, "exception", fail)
    with pytest.raises(WorkerLostError) as died:
        raise WorkerLostError("Worker exited prematurely: signal 9 (SIGKILL)")
    started.on_failure(ExceptionInfo((died.type, died.value, died.tb)))
    assert len(given_back) == 1
    assert short == "log" or f"death of the process of {named} not reported" in caplog.text
