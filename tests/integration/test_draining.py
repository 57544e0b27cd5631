"""Asking workers to drain, on a real broker, with a stand-in that answers for one worker."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any

import pytest

from harness_worker.adapters.celery.app import make_app
from harness_worker.adapters.clock import SystemClock
from harness_worker.config import Settings
from harness_worker.entrypoints.addresses import Addresses
from harness_worker.entrypoints.cli import drain_workers as command
from harness_worker.entrypoints.cli.drain_workers import Drained, drain_workers
from harness_worker.errors import ConfigError
from harness_worker.wire import DRAIN_COMMAND

NAME = "tools@here"


class Answers:
    """A worker's answers to successive commands: whether it drains, or ``None`` for silence."""

    def __init__(self, *answers: bool | None) -> None:
        self.left = list(answers)
        self._listens, self._is_over = threading.Event(), threading.Event()

    @contextmanager
    def given(self, settings: Settings) -> Generator[None]:
        """Have it listen."""
        thread = threading.Thread(target=self._listen, args=(settings,), daemon=True)
        thread.start()
        try:
            assert self._listens.wait(30)
            yield
        finally:
            self._is_over.set()
            thread.join()

    def _listen(self, settings: Settings) -> None:
        app: Any = make_app(settings, redis_url=settings.redis_url or "")
        with closing(app), app.connection_for_read() as connection:
            node = app.control.mailbox.Node(NAME, channel=connection.default_channel)
            node.handlers[DRAIN_COMMAND] = self._answer
            node.listen(callback=partial(self._hear, node))
            while not self._is_over.is_set():
                with suppress(TimeoutError):
                    connection.drain_events(timeout=0.1)
                self._listens.set()  # the first look subscribes

    def _hear(self, node: Any, body: Any, message: Any) -> None:  # noqa: ANN401 - kombu has no types
        if self.left[0] is None:
            self.left.pop(0)
        else:
            node.handle_message(body, message)

    def _answer(self, _state: object, **_arguments: object) -> dict[str, bool | None]:
        return {"draining": self.left.pop(0)}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the wait for answers long enough for a busy machine."""
    monkeypatch.setattr(command, "ANSWER_S", 2.5)


def test_worker_that_is_late_with_an_answer_is_not_gone(valkey_url: str) -> None:
    """A busy worker may miss a round or two; a deployment must not continue while it runs a write."""
    worker = Answers(False, False, False, True, None, None, True, None, None, None)
    settings = _settings(valkey_url)
    with worker.given(settings):
        drained = drain_workers(Addresses(settings), SystemClock(), (), wait_s=30)
    assert drained == Drained(gone=(NAME,), left=())
    assert worker.left == []


def test_worker_that_is_silent_when_the_wait_ends_is_heard_out(valkey_url: str) -> None:
    """However short the wait is, a worker that left at once counts as gone."""
    worker = Answers(False, False, False, True, None, None, None)
    settings = _settings(valkey_url)
    with worker.given(settings):
        drained = drain_workers(Addresses(settings), SystemClock(), (), wait_s=5)
    assert drained == Drained(gone=(NAME,), left=())


@pytest.mark.parametrize(("names", "asked"), [((), (None, None, False)), ((NAME,), (None, False))])
def test_worker_that_is_late_with_its_first_answer_is_drained(
    valkey_url: str, names: tuple[str, ...], asked: tuple[bool | None, ...]
) -> None:
    """Neither is it left out, to go on with the old code, nor is its name said to be wrong."""
    worker = Answers(*asked, True, False)  # another one of its name is there at once
    settings = _settings(valkey_url)
    with worker.given(settings):
        drained = drain_workers(Addresses(settings), SystemClock(), names, wait_s=5)
    assert drained == Drained(gone=(NAME,), left=())
    assert worker.left == []


def test_worker_that_is_named_twice_is_told_of_once(valkey_url: str) -> None:
    """As a list of names that was put together by a script may hold it."""
    settings = _settings(valkey_url)
    with Answers(False, True, False).given(settings):
        drained = drain_workers(Addresses(settings), SystemClock(), (NAME, NAME), wait_s=5)
    assert drained == Drained(gone=(NAME,), left=())


class Stranger(Answers):
    """A Celery worker of somebody else's on the same broker: it answers that it does not know the command."""

    def _answer(self, _state: object, **_arguments: object) -> dict[str, bool | None]:
        raise KeyError(DRAIN_COMMAND)


def test_worker_of_somebody_else_is_not_said_to_be_gone(valkey_url: str) -> None:
    """It is not asked to drain, and by its name it is unknown."""
    settings = _settings(valkey_url)
    with Stranger(False).given(settings):
        assert drain_workers(Addresses(settings), SystemClock(), (), wait_s=5) == Drained(gone=(), left=())
        with pytest.raises(ConfigError, match=f"no worker {NAME} answers; those that do: none"):
            drain_workers(Addresses(settings), SystemClock(), (NAME,), wait_s=5)


def _settings(valkey_url: str) -> Settings:
    return Settings(redis_url=f"{valkey_url.rpartition('/')[0]}/11")
