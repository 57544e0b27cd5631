"""A user's own check: what it may say, what it is given, and that it cannot end a sweep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from harness_worker.core.registration.judges import Score
from harness_worker.errors import ConfigError
from harness_worker.evaluation.cases import Case
from harness_worker.evaluation.checking import Check, load_check
from harness_worker.evaluation.results import Found, result_of
from harness_worker.turn.results import TurnResult
from harness_worker.wire import TurnStatus
from tests.unit.eval_kit import LATER, call, case, cell, turn


class Boxed:
    """A value as numpy.bool_ holds one."""

    def __init__(self, value: object) -> None:
        self._value = value

    def item(self) -> object:
        """The value as Python's own."""
        return self._value


Write = Callable[[str], str]


@pytest.mark.parametrize(
    ("said", "value", "reason"),
    [
        (True, 1.0, ""),
        (False, 0.0, ""),
        (0.25, 0.25, ""),
        (1, 1.0, ""),
        (Boxed(True), 1.0, ""),
        ((Boxed(False), "not all"), 0.0, "not all"),
        (Score(0.5, "so so"), 0.5, "so so"),
        ((False, "too long"), 0.0, "too long"),
        ((0.75, "good"), 0.75, "good"),
        ((True, "a\0b \ud800"), 1.0, "a\ufffdb \ufffd"),
    ],
)
def test_check_says_how_good_it_is(said: object, value: float, reason: str) -> None:
    """What a judge may say, whether it passed, and either with a reason; of that, what a file can hold."""
    given = Check(name="m:f", fn=lambda _case, _turn: said)(case(), turn())
    assert given == {"judge": "m:f", "score": value, "reason": reason, "error": None, "at": LATER}


@pytest.mark.parametrize("said", [None, "yes", 1.5, Boxed("yes"), float("nan"), (1, 2, 3), ("a", "b")])
def test_check_that_says_no_score_has_none(said: object) -> None:
    """The error says what a score is."""
    given = Check(name="m:f", fn=lambda _case, _turn: said)(case(), turn())
    assert given["score"] is None
    assert "a score is a number from 0 to 1" in given["error"]


@pytest.mark.parametrize(
    "error",
    [
        KeyError("order"),
        SystemExit(3),
        RecursionError("deep"),
        AssertionError(),
        GeneratorExit(),
        asyncio.CancelledError(),
        pytest.fail.Exception("too long"),
    ],
)
def test_check_that_raises_has_no_score(error: BaseException) -> None:
    """Whatever its author's code raises is the cell's failure, in words."""

    def fail(_case: Case, _turn: TurnResult) -> object:
        raise error

    given = Check(name="m:f", fn=fail)(case(), turn())
    assert given["score"] is None
    assert given["error"].startswith(type(error).__name__)


def test_check_changes_only_what_is_its_own() -> None:
    """A cell's digests are made of its case, and what is expected is held against its turn: both stay as they were."""
    asked = cell(
        metadata={"script": "x"}, target={"n": [7]}, expect={"calls": [{"tool": "put", "arguments": {"o": {"n": 7}}}]}
    )
    names = (asked.asked, asked.expected("m:f"))

    def spoil(given: Case, ended: TurnResult) -> bool:
        given.metadata["script"] = "y"
        given.target["n"].clear()
        ended.calls[0].arguments["o"]["n"] = 8
        return True

    found = result_of(asked, Found(turns=(turn("Hi.", call("put", o={"n": 7})),)), Check(name="m:f", fn=spoil))
    assert (found.why, found.asked, found.expected) == ((), *names)


def test_ctrl_c_in_a_check_is_a_ctrl_c() -> None:
    """It stops the sweep, not the cell."""

    def stop(_case: Case, _turn: TurnResult) -> object:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Check(name="m:f", fn=stop)(case(), turn())


def test_check_is_given_what_judges_are(capsys: pytest.CaptureFixture[str]) -> None:
    """A turn's fields as attributes; one of a later version is no matter. What it prints goes to stderr."""
    seen: list[tuple[Case, TurnResult]] = []

    def look(given: Case, ended: TurnResult) -> bool:
        print("looking")  # noqa: T201 - what a check may do
        seen.append((given, ended))
        return True

    Check(name="m:f", fn=look)(case(target={"n": 7}), turn("Hi.", call("put", n=7), of_tomorrow=1))
    ((given, ended),) = seen
    assert given.target == {"n": 7}
    assert (ended.status, ended.usage.steps, ended.messages[0]["role"]) == (TurnStatus.COMPLETED, 2, "user")
    assert ended.calls[0].arguments == {"n": 7}
    assert capsys.readouterr() == ("", "looking\n")


def test_load_check_finds_a_function(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    """In the working directory, which need not be installed; stdout stays JSON's."""
    name = write("print('loading')\ndef check(case, turn): return turn.output_text == case.target\n")
    check = load_check(f"{name}:check")
    assert check(case(target="Hi."), turn("Hi."))["score"] == 1.0
    assert capsys.readouterr() == ("", "loading\n")


@pytest.mark.parametrize(
    ("source", "name", "told"),
    [
        ("", "no-module", "write it as module:function"),
        ("x = 1", "{}:y", "has no 'y'"),
        ("x = 1", "{}:x", "is not a function"),
        ("def x(turn): ...", "{}:x", "it must take two arguments: def check(case, turn)"),
        ("async def x(case, turn): ...", "{}:x", "async functions are refused"),
        ("raise KeyError('x')", "{}:x", "KeyError"),
        ("", "nowhere_at_all:x", "No module named"),
    ],
)
def test_load_check_refuses_what_it_cannot_call(source: str, name: str, told: str, write: Write) -> None:
    """Before anything is asked; the message names the option."""
    with pytest.raises(ConfigError, match="--check") as refused:
        load_check(name.format(write(source)))
    assert told in str(refused.value)
