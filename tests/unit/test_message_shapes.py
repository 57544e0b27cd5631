"""Which messages a worker drops before Celery counts them as under way."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from celery.worker.consumer import Consumer

from harness_worker.adapters.celery.consumer import CarefulConsumer

HEADERS: dict[str, Any] = {"task": "tool.look", "id": "1"}
NEXT: dict[str, Any] = {"task": "tool.look"}
ODD: list[tuple[Any, dict[str, Any]]] = [
    (([], {}, None), {}),
    (([], [], {}), {}),
    (("ab", {}, {}), {}),
    (([], {}, {"chain": [5]}), {}),
    (([], {}, {"chain": [{"args": []}]}), {}),
    (([], {}, {"callbacks": NEXT}), {}),
    (([], {}, {"errbacks": [[]]}), {}),
    (([], {}, {"chord": 5}), {}),
    (([], {"self": 1}, {}), {}),
    (([], {}, {}), {"id": 7}),
    (([], {}, {}), {"expires": "zzz"}),
    (([], {}, {}), {"expires": "9999-12-31T24:00:00"}),
    (([], {}, {}), {"eta": "2030-01-01T00:00:00"}),
    (([], {}, {}), {"timelimit": ["soon", None]}),
    (([], {}, {}), {"timelimit": [10**400, None]}),
    (([], {}, {}), {"timelimit": [None, float("nan")]}),
    (([], {}, {}), {"stamped_headers": [[]]}),
    (([], {}, {}), {"stamped_headers": "ab"}),
    (([], {}, {}), {"stamps": []}),
    (([], {}, {}), {"shadow": 5}),
]


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The messages that Celery was given."""
    handled: list[Any] = []

    def handler(_: object) -> Callable[[Any], None]:
        return handled.append

    monkeypatch.setattr(Consumer, "create_task_handler", handler)
    return handled


def received(*body: object, **headers: object) -> tuple[Any, list[str]]:
    """A message that was received, and what became of it."""
    became: list[str] = []
    message: Any = SimpleNamespace(payload=body, headers={**HEADERS, **headers}, acknowledged=False)
    message.reject = lambda: became.append("rejected")
    consumer: Any = object.__new__(CarefulConsumer)
    consumer.create_task_handler()(message)
    return message, became


@pytest.mark.parametrize("embed", [{}, {"chain": [NEXT], "callbacks": None, "errbacks": [NEXT], "chord": NEXT}])
def test_task_is_handled(handled: list[Any], embed: dict[str, Any]) -> None:
    """Whatever follows it."""
    message, became = received([], {"n": 1}, embed, timelimit=[None, 2.5], expires=None)
    assert (handled, became) == ([message], [])


@pytest.mark.parametrize(("body", "headers"), ODD)
def test_what_celery_would_fail_on_is_rejected(
    handled: list[Any], body: tuple[object, ...], headers: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """It would keep its place among the messages under way for good."""
    _, became = received(*body, **headers)
    assert (handled, became) == ([], ["rejected"])
    assert "message dropped, it is not one of ours" in caplog.text


def test_message_that_celery_has_answered_is_not_answered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second answer is an error, over which the worker would end."""

    def answer_and_fail(message: Any) -> None:  # noqa: ANN401 - a kombu message
        message.acknowledged = True
        raise LookupError("in what follows")

    def handler(_: object) -> Callable[[Any], None]:
        return answer_and_fail

    monkeypatch.setattr(Consumer, "create_task_handler", handler)
    assert received([], {}, {})[1] == []


def test_message_that_cannot_be_decoded_is_gone() -> None:
    """It would come again to the next worker, and again."""
    became: list[str] = []
    consumer: Any = object.__new__(CarefulConsumer)
    consumer.on_decode_error(SimpleNamespace(ack=lambda: became.append("acknowledged")), ValueError("no JSON"))
    assert became == ["acknowledged"]
