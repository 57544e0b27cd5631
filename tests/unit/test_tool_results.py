"""What a tool's return or exception becomes."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from harness_worker.core.outcomes import ToolExecutionResult, ToolFailure, ToolOutcome
from harness_worker.core.tool_results import MAX_ERROR_CHARS, outcome_of_exception, outcome_of_return, without_paths
from harness_worker.errors import ToolError, ToolOutcomeUnknown, ToolTransientError


def returned(value: object) -> ToolOutcome:
    """The outcome of a tool that returned ``value``."""
    return outcome_of_return("0.1", "t", value, elapsed_ms=5.0, was_coerced=True)


def raised(error: BaseException) -> ToolFailure:
    """The outcome of a tool that raised ``error``."""
    outcome = outcome_of_exception("0.1", "t", error, elapsed_ms=5.0)
    assert isinstance(outcome, ToolFailure)
    return outcome


def test_return_becomes_a_result_with_compact_json() -> None:
    """A value is the result's output; time and coercion are kept."""
    assert returned({"a": [1, "ü"]}) == ToolExecutionResult(
        call_id="0.1", tool_name="t", output='{"a":[1,"ü"]}', elapsed_ms=5.0, was_coerced=True
    )
    assert returned(None) == ToolExecutionResult(
        call_id="0.1", tool_name="t", output="null", elapsed_ms=5.0, was_coerced=True
    )


@pytest.mark.parametrize("error", ["no such order", "", False, 0, {"code": 7}])
def test_return_of_a_dict_with_an_error_is_a_failure(error: object) -> None:
    """A non-null ``error`` makes a failure whose content is the whole dict."""
    outcome = returned({"error": error, "hint": "x"})
    assert isinstance(outcome, ToolFailure)
    assert outcome.error.startswith('{"error":')
    assert outcome.retryable


@pytest.mark.parametrize("value", ['{"error": "x"}', "Error: x", {"error": None}, [{"error": "x"}], ""])
def test_return_without_an_error_key_is_never_a_failure(value: object) -> None:
    """A returned string is never a failure, nor is a null error or one further in."""
    assert isinstance(returned(value), ToolExecutionResult)


def test_return_that_json_cannot_hold_is_a_failure() -> None:
    """An unserialisable value is the tool's failure, even beside an error."""
    outcome = returned({"a": [object()], "error": "x"})
    assert isinstance(outcome, ToolFailure)
    assert outcome.error == "unserialisable result: object at $.a[0]"


def test_return_that_cannot_be_read_is_a_failure() -> None:
    """It returned: whatever its value raises when it is read is its failure, no loss of its process."""

    class Rows(list[int]):
        def __iter__(self) -> Iterator[int]:
            sys.exit(1)

    class Lent(dict[str, str]):
        def get(self, *_: object) -> NoReturn:
            raise RuntimeError

    outcome = returned({"rows": Rows()})
    assert isinstance(outcome, ToolFailure)
    assert outcome.error == "unserialisable result: Rows at $.rows"
    assert isinstance(returned(Lent(a="b")), ToolExecutionResult)
    assert isinstance(returned(Lent(error="b")), ToolFailure)


def test_tool_error_speaks_for_itself() -> None:
    """A ToolError's message is verbatim, without its type's name; it says itself whether to ask again."""
    assert raised(ToolError("Order /1042/ is paid.")).error == "Order /1042/ is paid."
    assert raised(ToolError("no")).retryable
    assert not raised(ToolError("never", retryable=False)).retryable
    assert raised(ToolTransientError("busy")).error == "busy"
    assert raised(ToolError("a\x00")).error == "a\ufffd"
    assert raised(ToolError(" a\n")).error == " a\n"


class NoSuchOrderError(ToolError):
    """An error of an application, which does not call the ``__init__`` of its base."""

    def __init__(self, order_id: str) -> None:
        self.order_id = order_id

    def __str__(self) -> str:
        return f"no order {self.order_id}"


def test_tool_error_of_an_applications_own_class_is_a_failure() -> None:
    """It may be asked again, like any other."""
    said = ToolFailure(call_id="0.1", tool_name="t", error="no order 7", retryable=True, elapsed_ms=5.0)
    assert raised(NoSuchOrderError("7")) == said


@pytest.mark.parametrize("message", ["", " \n"])
def test_tool_error_that_says_nothing_is_given_words(message: str) -> None:
    """Claude refuses an error whose content is empty."""
    assert raised(ToolError(message)).error == "(no message)"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad amount"), "ValueError: bad amount"),
        (KeyError("id"), "KeyError: 'id'"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt: (no message)"),
        (RecursionError("maximum recursion depth exceeded"), "RecursionError: maximum recursion depth exceeded"),
    ],
)
def test_exception_becomes_its_type_and_message(error: BaseException, text: str) -> None:
    """Any exception, ``SystemExit`` and its like included, is a failure the model can read."""
    assert raised(error).error == text
    assert raised(error).retryable


def test_exception_whose_str_raises_still_becomes_a_failure() -> None:
    """The function never raises."""

    class RudeError(Exception):
        def __str__(self) -> str:
            raise self.__cause__ or RuntimeError

    rude, ruder = RudeError(), RudeError()
    ruder.__cause__ = SystemExit(1)
    assert raised(rude).error == raised(ruder).error == "RudeError: (no message)"


def test_only_the_beginning_of_a_very_long_exception_message_is_read() -> None:
    """Looking for paths and frames in all of it may take longer than its call has."""
    assert raised(ValueError('  File "a.py"\n' * 100_000 + "end")).error == "ValueError: (no message)"


def test_exception_message_is_cut() -> None:
    """No more than 2,000 characters in all."""
    said = raised(ValueError("x" * 10_000)).error
    assert len(said) == MAX_ERROR_CHARS
    assert said.startswith("ValueError: xxx")


def test_exception_of_a_missing_file_names_no_path(tmp_path: Path) -> None:
    """An operating system error keeps its reason and loses its path, absolute or relative."""
    with pytest.raises(FileNotFoundError) as absolute:
        (tmp_path / "a dir" / "x.txt").read_text()
    with pytest.raises(FileNotFoundError) as relative:
        Path("no/such dir/x.txt").read_text()
    for caught in (absolute, relative):
        assert raised(caught.value).error == "FileNotFoundError: [Errno 2] No such file or directory: '<path>'"


def test_exception_that_quotes_a_traceback_shows_no_frames() -> None:
    """Frames in a message are dropped; the line that says what happened stays."""
    try:
        raise ValueError("inner")  # noqa: TRY301 - the traceback is what is tested
    except ValueError:
        quoted = traceback.format_exc()
    said = raised(RuntimeError(f"worker said:\n{quoted}")).error
    assert said == "RuntimeError: worker said:\nValueError: inner"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("open '/home/me/a b.txt' failed", "open '<path>' failed"),
        ('open "/home/me/Ann\'s files/b.txt" failed', 'open "<path>" failed'),
        ("see /etc/passwd:3", "see <path>:3"),
        ("(~/x/y.py)", "(<path>)"),
        ("at ../up/x", "at <path>"),
        (r"C:\Users\me\x.txt is locked", "<path> is locked"),
        ("file:///srv/x", "<path>"),
        ("GET https://shop.example/v1/orders?x=1 said 404", "GET https://shop.example/v1/orders?x=1 said 404"),
        ("1 / 2 and and/or, </b>", "1 / 2 and and/or, </b>"),
        ("unsupported operand type(s) for /: 'int' and 'str'", "unsupported operand type(s) for /: 'int' and 'str'"),
    ],
)
def test_without_paths_keeps_everything_but_file_paths(message: str, shown: str) -> None:
    """File paths go; URLs, fractions and markup stay."""
    assert without_paths(message) == shown


def test_tool_may_say_that_nobody_knows_its_outcome() -> None:
    """A write is then in doubt; a read may simply be asked again."""
    error = ToolOutcomeUnknown("the bank did not answer")
    said = "outcome_unknown: t started, and the bank did not answer; its effect may or may not have happened"
    assert outcome_of_exception("0.1", "t", error, elapsed_ms=5.0, is_read=False) == ToolFailure(
        call_id="0.1", tool_name="t", error=said, elapsed_ms=5.0, in_doubt=True
    )
    assert raised(error) == ToolFailure(call_id="0.1", tool_name="t", error="the bank did not answer", elapsed_ms=5.0)
