"""Judges: who scores a turn once it is over, as their authors declare them (docs/reference/judges.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from harness_worker.core.registration.callables import signature_of
from harness_worker.core.registration.model_names import is_model_name
from harness_worker.core.registration.tool_options import TOOL_NAME, is_number
from harness_worker.errors import ConfigError
from harness_worker.wire import TurnStatus

CRITERIA: Final[Mapping[str, str]] = {
    "faithfulness": "Does the answer claim only what the evidence supports? 1: every claim is supported, or nothing is "
    "claimed. 0: what matters in it is unsupported or contradicted.",
    "relevance": "Does the answer address what was asked, and nothing else? 1: fully. 0: not at all.",
}
"""What the judges that are built in ask, by their names."""

TIMEOUT_S: Final = 30.0
LONGEST_S: Final = 300.0
JUDGED: Final = frozenset({TurnStatus.COMPLETED, TurnStatus.INCOMPLETE})
"""How a turn ends that has an answer to judge."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a judge says: from 0, worst, to 1, best, and why."""

    value: float
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSpec:
    """One registered judge: a function, or a model with a criterion.

    Args:
        name: What agents and scores call it.
        fn: Given the ended turn, a ``TurnResult``; returns a :class:`Score` or its value.
        model: Asked instead, by the criterion.
        criterion: What it judges by.
        timeout_s: How long it may take, in seconds.
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
        ConfigError: It cannot work; the message names the judge and the mend.
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
    """What a judge said as a score.

    Raises:
        ValueError: It is none.
    """
    score = said if isinstance(said, Score) else Score(cast("float", said))
    value = cast("object", score.value)
    if not (is_number(value) and 0 <= value <= 1):
        raise ValueError(f"a score is a number from 0 to 1, or a Score of it, not {said!r:.200}")
    return Score(float(value), str(score.reason))


def _check_function(fn: object, criterion: str | None, label: str) -> None:
    if criterion is not None:
        raise ConfigError(f"{label}: a criterion is for a model; a function has its own")
    if not signature_of(fn, label).parameters:
        raise ConfigError(f"{label}: its function must take the turn")


def _criterion(name: str, model: str | None, criterion: str | None, label: str) -> str:
    found = criterion or CRITERIA.get(name, "")
    if model is not None and not found:
        built_in = ", ".join(CRITERIA)
        raise ConfigError(f"{label}: say what the model shall judge by with criterion='…'; built in are {built_in}")
    return found
