"""Approvals within one process: ``AgentHarness.run_turn`` asks a function; the how-to's example runs as written."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harness_worker import AgentHarness, Effect, Registry, Settings, TurnResult
from harness_worker.turn.answering import Approver, nobody
from harness_worker.turn.results import RequiredAction
from tests.relay import Relay
from tests.unit.bad_rules import raise_unshowable

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "approve-calls.md"


def script(directory: Path, *calls: dict[str, Any]) -> Path:
    """A script that asks for two refunds at once, and then ends."""
    uses = [{"type": "tool_use", "id": f"u{i}", "name": "refund", "input": given} for i, given in enumerate(calls)]
    lines = [{"step": 0, "content": uses}, {"step": 1, "content": [{"type": "text", "text": "done"}]}]
    file = directory / "refunds.jsonl"
    file.write_text("".join(json.dumps({"script": "default", **line}) + "\n" for line in lines))
    return file


@pytest.fixture
def harness(tmp_path: Path) -> Generator[AgentHarness]:
    """An agent whose one tool always needs approval, asked for two refunds."""
    registry = Registry()

    @registry.tool(effect=Effect.NETWORK, approval="always", lock="{order}")
    def refund(order: str, cents: int) -> str:
        """Pay back."""
        return f"{order}: {cents}"

    file = script(tmp_path, {"order": "a", "cents": 1}, {"order": "b", "cents": 2})
    registry.agent("clerk", model=f"scripted:{file}", tools=[refund])
    harness = AgentHarness(registry, Settings(home=tmp_path))
    yield harness
    harness.close()


def contents(turn: TurnResult) -> list[str]:
    """The content of each call, as the model reads it."""
    assert turn.status == "completed"
    assert turn.required_actions == ()
    return [call.content for call in turn.calls]


def _only_a(action: RequiredAction) -> bool:
    return action["arguments"]["order"] == "a"


def _seven(action: RequiredAction) -> dict[str, Any]:
    return {**action["arguments"], "cents": 7}


def _reason(action: RequiredAction) -> str:
    return f"not {action['tool']} {action['call_id']}"


async def _later(_action: RequiredAction) -> bool:
    return True


def _promise(action: RequiredAction) -> Any:  # noqa: ANN401 - as a caller without types may have it
    promise = _later(action)
    promise.close()
    return promise


def _unstorable(_action: RequiredAction) -> str:
    return "\x00 \ud800"


def _no_json(action: RequiredAction) -> dict[str, Any]:
    return {**action["arguments"], "cents": object()}


def _broken(_action: RequiredAction) -> bool:
    raise ValueError("no idea")


@pytest.mark.parametrize(
    ("approve", "read"),
    [
        (_only_a, ["a: 1", "denied: approval: not approved"]),
        (_seven, ["a: 7", "b: 7"]),
        (_reason, ["denied: approval: not refund 0.0", "denied: approval: not refund 0.1"]),
        (_promise, ["denied: approval: not approved"] * 2),
        (_unstorable, ["denied: approval: \ufffd \ufffd"] * 2),
        (_broken, ["denied: approval: approving failed: ValueError"] * 2),
        (raise_unshowable, ["denied: approval: approving failed: Unshowable"] * 2),
        (_no_json, ["denied: approval: approving failed: UnserialisableResult"] * 2),
        (nobody, ["denied: approval: nobody is there to approve"] * 2),
    ],
)
def test_run_turn_asks_its_caller(harness: AgentHarness, approve: Approver, read: list[str]) -> None:
    """``True`` or other arguments run the call; anything else denies it, such as what an async function returns."""
    assert contents(harness.run_turn(None, "Refund both.", approve=approve)) == read


def test_caller_is_told_how_long_the_tool_lets_it_take(tmp_path: Path) -> None:
    """Calls that are asked about together may have different times; without one of its tool, it is the setting's."""
    registry = Registry()
    for order, seconds in (("a", 60.0), ("b", None)):
        registry.tool(lambda: "paid", name=order, description="Pay.", approval="always", approval_timeout_s=seconds)
    file = script(tmp_path, {}, {})
    file.write_text(file.read_text().replace("refund", "a", 1).replace("refund", "b", 1))
    registry.agent("clerk", model=f"scripted:{file}", tools=["a", "b"])
    until: list[datetime] = []

    def approve(action: RequiredAction) -> bool:
        until.append(datetime.fromisoformat(action["expires_at"] or ""))
        return True

    with closing(AgentHarness(registry, Settings(home=tmp_path, approval_timeout_s=100.0))) as harness:
        assert contents(harness.run_turn(None, "Pay both.", approve=approve)) == ["paid", "paid"]
    assert until[1] - until[0] == timedelta(seconds=40)


def test_answer_that_says_nothing_is_told(harness: AgentHarness, caplog: pytest.LogCaptureFixture) -> None:
    """A function that forgets to return, or is async, has its calls denied, and the log says why."""
    harness.run_turn(None, "Refund both.", approve=_promise)
    assert "approve returned coroutine, not True, False, arguments or a reason; call 0.0 of refund" in caplog.text


def test_run_turn_denies_when_nobody_is_there(harness: AgentHarness) -> None:
    """Without a function that answers, every call that needs approval is denied."""
    assert contents(harness.run_turn(None, "Refund both.")) == ["denied: approval: nobody is there to approve"] * 2


def test_interrupt_is_told_though_the_database_is_gone(tmp_path: Path, line: Relay) -> None:
    """Ctrl-C at a question ends the turn if it can, and reaches the caller even if it cannot."""
    registry = Registry()

    @registry.tool(approval="always")
    def refund(order: str) -> str:
        """Pay back."""
        return order

    def interrupt(_action: RequiredAction) -> bool:
        line.close()
        raise KeyboardInterrupt

    registry.agent("clerk", model=f"scripted:{script(tmp_path, {'order': 'a'})}", tools=[refund])
    harness = AgentHarness(registry, Settings(home=tmp_path, database_url=line.url))
    with closing(harness), pytest.raises(KeyboardInterrupt):
        harness.run_turn(None, "Refund it.", approve=interrupt)


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def _run_page() -> dict[str, Any]:
    """The names that the page's code defines, with the page's scripts for models that have none here."""
    for name, given in zip(("refunds.jsonl", "desk.jsonl"), _blocks("jsonl"), strict=True):
        if not Path(name).exists():
            Path(name).write_text(given)
    names: dict[str, Any] = {"__name__": "refunds"}
    for source in _blocks("python"):
        exec(compile(source, "refunds.py", "exec"), names)  # noqa: S102 - our own page
    return names


def test_how_to_example_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The examples run with the scripts of their page."""
    monkeypatch.chdir(tmp_path)
    _run_page()
    assert capsys.readouterr().out == "".join(_blocks("text"))


def test_how_to_example_decides_by_the_amount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small refund needs no answer, a larger one is reduced, and a large one is denied."""
    monkeypatch.chdir(tmp_path)
    script(tmp_path, *({"order_id": "1042", "amount_cents": cents} for cents in (5_000, 20_000, 60_000)))
    names = _run_page()
    assert contents(names["turn"]) == [
        "refunded 5000 cents of order 1042",
        "refunded 10000 cents of order 1042",
        "denied: approval: more than 500 needs a manager",
    ]
