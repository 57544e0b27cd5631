"""Explains which parts of an expectation a turn does not meet."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from harness_worker.core.canonical import canonical, compact
from harness_worker.core.registration.problems import short
from harness_worker.evaluation.cases import Expectation, ToolCall
from harness_worker.wire import JsonObject, TurnStatus


def unmet(expect: Expectation, turns: Sequence[JsonObject]) -> Iterator[str]:
    """A line for each part of the expectation that the turn does not meet.

    Args:
        expect: What must hold.
        turns: A case's turns in order, all ended, shaped as in the HTTP API, the last one with its scores.
    """
    last, calls = turns[-1], [call for turn in turns for call in turn["calls"]]
    yield from _ending(expect, last)
    yield from _answer(expect, last["output_text"])
    yield from _calls(expect, calls)
    yield from _scores(expect, last.get("scores", ()))


def ending(turn: JsonObject) -> str:
    """How a turn ended, in words."""
    why = f" ({turn['stop_reason']})" if turn["stop_reason"] else ""
    said = f": {turn['error']['message']}" if turn["error"] else ""
    return f"{turn['status']}{why}{said}"


def _ending(expect: Expectation, turn: JsonObject) -> Iterator[str]:
    if expect.stop_reason is None and turn["status"] != TurnStatus.COMPLETED:
        yield f"the turn ended as {ending(turn)}"
    elif expect.stop_reason not in (None, turn["stop_reason"]):
        yield f"the turn ended as {ending(turn)}, and not by {expect.stop_reason}"


def _answer(expect: Expectation, answer: str) -> Iterator[str]:
    folded = answer.casefold()
    if expect.equals is not None and answer.strip() != expect.equals.strip():
        yield f"the answer is not {_shown(expect.equals)}"
    for text in expect.contains:
        if text.casefold() not in folded:
            yield f"the answer does not contain {_shown(text)}"
    for text in expect.not_contains:
        if text.casefold() in folded:
            yield f"the answer contains {_shown(text)}"
    if expect.matches is not None and re.search(expect.matches, answer) is None:
        yield f"the answer does not match {_shown(expect.matches)}"


def _calls(expect: Expectation, calls: Sequence[JsonObject]) -> Iterator[str]:
    for wanted, least in _counted(expect.calls):
        made = sum(_is(wanted, call) for call in calls)
        if made < least:
            how_often = (
                "was not called with success" if not made else f"was called with success {made} of {least} times"
            )
            told = f" with {_shown(compact(wanted.arguments))}" if wanted.arguments else ""
            yield f"{wanted.tool} {how_often}{told}"
    asked = {call["tool"] for call in calls}
    yield from (f"{tool} was called" for tool in expect.no_calls if tool in asked)


def _counted(wanted: Sequence[ToolCall]) -> Iterator[tuple[ToolCall, int]]:
    """Each expected call, and how many times it is listed."""
    named = Counter(canonical(call.model_dump()) for call in wanted)
    return zip({canonical(call.model_dump()): call for call in wanted}.values(), named.values(), strict=True)


def _is(wanted: ToolCall, call: JsonObject) -> bool:
    succeeded = call["outcome"] is not None and not call["is_error"]
    return succeeded and call["tool"] == wanted.tool and _holds(call["arguments"], wanted.arguments)


def _holds(found: object, wanted: object) -> bool:
    """Whether ``found`` equals ``wanted``; objects may have further members."""
    if not (isinstance(found, Mapping) and isinstance(wanted, Mapping)):
        return canonical(found) == canonical(wanted)  # which tells true from 1, as Python does not
    there = cast("Mapping[str, Any]", found)
    return all(
        name in there and _holds(there[name], value) for name, value in cast("Mapping[str, Any]", wanted).items()
    )


def _scores(expect: Expectation, scores: Sequence[JsonObject]) -> Iterator[str]:
    given = {score["judge"]: score for score in scores}
    for judge, least in expect.scores.items():
        score = given.get(judge)
        if score is None:
            yield f"no judge {judge} scored the turn"
        elif score["score"] is None:
            yield f"{judge} gave no score: {score['error'] or 'it is still due'}"
        elif score["score"] < least:
            yield f"{judge} scored {score['score']:g}, below {least:g}"


def _shown(text: str) -> str:
    return repr(short(text))
