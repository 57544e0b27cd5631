"""Cases: what to ask an agent, and what must be true of its answer; a file holds one per line, as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, TypeAlias, TypeVar, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationError

from harness_worker.core.json_lines import numbered_lines, parsed
from harness_worker.core.registration.agent_options import budget_problems
from harness_worker.errors import ConfigError
from harness_worker.validation import MAX_METADATA_CHARS, MAX_METADATA_PAIRS, complaint, storable
from harness_worker.wire import StopReason

OURS: Final = ("sweep", "case", "repeat")
"""Keys of a turn's metadata that name its cell."""

MOST_TURNS: Final = 100
"""The most turns of one case."""

MOST_TOLD: Final = 100
"""How many problems of a file are reported at once."""

T = TypeVar("T")


def _listed(value: object) -> object:
    """A list; a single item becomes a list of one."""
    return cast("object", (value,)) if isinstance(value, str | dict) else value


def _texts(value: object) -> object:
    """A list of texts; a single text becomes a list of one."""
    if not isinstance(value, str | list) or value == []:
        raise ValueError("must be a text, or a list of texts for turns one after the other")
    return cast("object", (value,)) if isinstance(value, str) else cast("object", value)


def _called(value: object) -> object:
    """An expected call; a tool's name alone means a call with any arguments."""
    return {"tool": value} if isinstance(value, str) else value


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return text


def _budget(value: dict[str, Any]) -> dict[str, Any]:
    problems = "; ".join(budget_problems(value))
    if problems:
        raise ValueError(problems)
    return value


def _metadata(value: dict[str, str]) -> dict[str, str]:
    taken = [name for name in OURS if name in value]
    if taken:
        raise ValueError(f"{', '.join(taken)}: these keys name the cell of a turn; choose others")
    return value


Text = Annotated[str, AfterValidator(storable)]
ShortText = Annotated[str, Field(max_length=MAX_METADATA_CHARS), AfterValidator(storable)]
OneOrMore: TypeAlias = Annotated[tuple[T, ...], BeforeValidator(_listed)]
Metadata = Annotated[
    dict[ShortText, ShortText], Field(max_length=MAX_METADATA_PAIRS - len(OURS)), AfterValidator(_metadata)
]
Share = Annotated[float, Strict(), Field(ge=0, le=1)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(_Part):
    """A call that must have been made.

    Args:
        tool: The tool's name.
        arguments: What its arguments must include; it may have had others, too.
    """

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)


Call = Annotated[ToolCall, BeforeValidator(_called)]


class Expectation(_Part):
    """What must be true of a turn that has ended; every given part must hold.

    Args:
        equals: The answer, apart from white space around it.
        contains: Texts that must be in the answer, in upper or lower case.
        not_contains: Texts that must not be in the answer.
        matches: A regular expression that must be found in the answer.
        calls: Calls that must have succeeded, in any order.
        no_calls: Tools that the model must not have called.
        stop_reason: Why the turn must have ended; by default, it must have been completed.
        scores: The minimum score from each of these judges.
    """

    equals: str | None = None
    contains: OneOrMore[str] = ()
    not_contains: OneOrMore[str] = ()
    matches: Annotated[str, AfterValidator(_pattern)] | None = None
    calls: OneOrMore[Call] = ()
    no_calls: OneOrMore[str] = ()
    stop_reason: StopReason | None = None
    scores: dict[str, Share] = Field(default_factory=dict)


class Case(_Part):
    """One case.

    Args:
        id: Unique in its file.
        input: What the agent is asked; several texts are turns of one session, one after the other.
        metadata: Stored with its turns; with a scripted model, it also chooses the script.
        budget: Limits of each turn, below the agent's.
        expect: What must hold for its last turn, and for the calls of all its turns.
        target: Any data for a check of the user's own; it is not sent to the agent.
    """

    id: Annotated[str, Field(min_length=1, max_length=MAX_METADATA_CHARS), AfterValidator(storable)]
    input: Annotated[tuple[Text, ...], BeforeValidator(_texts), Field(max_length=MOST_TURNS)]
    metadata: Metadata = Field(default_factory=dict)
    budget: Annotated[dict[str, Any], AfterValidator(_budget)] = Field(default_factory=dict)
    expect: Expectation = Expectation()
    target: Any = None


def read_cases(file: str, data: bytes) -> tuple[Case, ...]:
    """Every case of a file.

    Args:
        file: The file's name in error messages.
        data: The file's bytes; empty lines are skipped. A case without an id gets its line's number.

    Raises:
        ConfigError: There are no cases, or some lines are wrong; the message lists these lines and their problems.
    """
    found, problems = dict[str, tuple[int, Case]](), list[str]()
    for number, line in numbered_lines(data):
        try:
            case = Case.model_validate(_members(line, number))
        except ValidationError as invalid:
            problems += [f"line {number}: {_problem(error)}" for error in invalid.errors(include_url=False)]
        except ValueError as error:
            problems.append(f"line {number}: {error}")
        else:
            first, _ = found.setdefault(case.id, (number, case))
            if first != number:
                problems.append(
                    f"line {number}: id {case.id!r} is that of line {first} already; give it one of its own"
                )
    if problems:
        more = [f"and {len(problems) - MOST_TOLD} more"] if problems[MOST_TOLD:] else []
        raise ConfigError("\n  ".join((f"{file}: nothing was asked:", *problems[:MOST_TOLD], *more)))
    if not found:
        raise ConfigError(f'{file} has no cases: write one a line, such as {{"input": "Where is my order?"}}')
    return tuple(case for _, case in found.values())


def _members(line: bytes, number: int) -> Mapping[str, object]:
    """The members of a line, without those that are null; the line's number is the id if there is none.

    Raises:
        ValueError: The line is not a JSON object.
    """
    case = parsed(line)
    if not isinstance(case, dict):
        raise ValueError('a case is an object, such as {"input": "Where is my order?"}')  # noqa: TRY004 - a wrong line
    given = _without_nulls(cast("dict[str, object]", case))
    if isinstance(expected := given.get("expect"), dict):
        given["expect"] = _without_nulls(cast("dict[str, object]", expected))
    return {"id": str(number), **given}


def _without_nulls(members: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in members.items() if value is not None}


def _problem(error: Mapping[str, Any]) -> str:
    place = ".".join(str(step) for step in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"{place}: unknown field; there are: {', '.join(_fields_at(error['loc'][:-1]))}"
    said = "required, but missing" if error["type"] == "missing" else complaint(error)
    return f"{place}: {said[0].lower()}{said[1:]}"


def _fields_at(place: tuple[str | int, ...]) -> Iterator[str]:
    model = ToolCall if "calls" in place else Expectation if place else Case
    return iter(model.model_fields)
