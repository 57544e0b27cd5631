"""Judges, which score turns that have ended, as their authors declare them (docs/reference/judges.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from harness_worker.core.registration.callables import check_takes, signature_of
from harness_worker.core.registration.model_names import is_model_name
from harness_worker.core.registration.tool_options import TOOL_NAME, is_number
from harness_worker.core.text import clean_text
from harness_worker.errors import ConfigError
from harness_worker.wire import TurnStatus

CRITERIA: Final[Mapping[str, str]] = {
    "faithfulness": "Does the answer claim only what the evidence supports? 1: every claim is supported, or nothing is "
    "claimed. 0: what matters in it is unsupported or contradicted.",
    "relevance": "Does the answer address what was asked, and nothing else? 1: fully. 0: not at all.",
}
"""The criteria of the built-in judges, by name."""

TIMEOUT_S: Final = 30.0
LONGEST_S: Final = 300.0
JUDGED: Final = frozenset({TurnStatus.COMPLETED, TurnStatus.INCOMPLETE})
"""The final statuses of turns that have an answer to judge."""


@dataclass(frozen=True, slots=True)
class Score:
    """A judge's score, from 0 (worst) to 1 (best), and the reason for it."""

    value: float
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSpec:
    """One registered judge: a function, or a model with a criterion.

    Args:
        name: Its name in agents' declarations and in scores.
        fn: A function of the ended turn, a ``TurnResult``, that returns a :class:`Score` or its value.
        model: The model to ask instead of a function.
        criterion: What the model judges by.
        timeout_s: How long judging may take, in seconds.
    """

    name: str
    fn: Callable[[Any], object] | None
    model: str | None
    criterion: str
    timeout_s: float


def judge_spec(
    name: str,
    fn: Callable[[Any], object] | None,
    *,
    model: str | None,
    criterion: str | None,
    timeout_s: float,
) -> JudgeSpec:
    """A checked declaration.

    Raises:
        ConfigError: It cannot work; the message names the judge and says what to change.
    """
    label = f"judge {name!r}"
    given: Any = name
    if not isinstance(given, str) or TOOL_NAME.fullmatch(given) is None:
        raise ConfigError(f"{label}: a name is 1 to 64 of A-Z a-z 0-9 _ -")
    if (fn is None) == (model is None):
        raise ConfigError(f"{label}: give it either a function of the turn or a model='…'")
    if model is not None and not is_model_name(model):
        raise ConfigError(f"{label}: model must be a model's name or 'scripted:FILE', not {model!r}")
    if not (is_number(timeout_s) and 0 < timeout_s <= LONGEST_S):
        raise ConfigError(f"{label}: timeout_s must be seconds above 0 and at most {LONGEST_S:g}, not {timeout_s!r}")
    if fn is not None:
        _check_function(fn, criterion, label)
    return JudgeSpec(
        name=name, fn=fn, model=model, criterion=_criterion(name, model, criterion, label), timeout_s=timeout_s
    )


def score_of(said: object) -> Score:
    """A judge's answer as a score.

    Raises:
        ValueError: It is not a score.
    """
    score = said if isinstance(said, Score) else Score(cast("float", said))
    value = cast("object", score.value)
    if not (is_number(value) and 0 <= value <= 1):
        raise ValueError(f"a score is a number from 0 to 1, or a Score of it, not {said!r:.200}")
    return Score(float(value), str(score.reason))


def _check_function(fn: object, criterion: str | None, label: str) -> None:
    if criterion is not None:
        raise ConfigError(f"{label}: a criterion is for a model; a function has its own")
    signature_of(fn, label)
    check_takes(fn, f"{label}: its function", "the turn")


def _criterion(name: str, model: str | None, criterion: object, label: str) -> str:
    if criterion is not None and not isinstance(criterion, str):
        raise ConfigError(f"{label}: criterion must be a string, not {type(criterion).__name__}")
    found = criterion or CRITERIA.get(name, "")
    if model is not None and not found:
        built_in = ", ".join(CRITERIA)
        raise ConfigError(f"{label}: say what the model is to judge by with criterion='…'; built in are {built_in}")
    return clean_text(found)
