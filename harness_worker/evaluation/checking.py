"""A user's own check of a case's last turn."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic import TypeAdapter

from harness_worker.apps import load_named
from harness_worker.core.registration.author_code import Raised, attempt
from harness_worker.core.registration.callables import signature_of
from harness_worker.core.registration.judges import Score, score_of
from harness_worker.core.text import clean_text
from harness_worker.core.tool_results import describe
from harness_worker.errors import ConfigError
from harness_worker.evaluation.cases import Case
from harness_worker.turn.results import TurnResult
from harness_worker.wire import JsonObject

PASSING: Final = 0.5
"""The minimum score with which a cell passes."""

_turns: Final = TypeAdapter(TurnResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A function that scores.

    Args:
        name: Its name on the command line: ``module:function``.
        fn: Takes copies of the case and of its last turn, a ``TurnResult``; returns a ``Score``, a score's value,
            whether the turn passes, or one of the latter two with a reason.
    """

    name: str
    fn: Callable[[Case, TurnResult], object]

    def __call__(self, case: Case, turn: JsonObject) -> JsonObject:
        """The score of a turn, in the shape of a judge's score; what the function prints goes to stderr."""
        said: JsonObject = {"judge": self.name, "score": None, "reason": "", "error": None, "at": turn["finished_at"]}
        with contextlib.redirect_stdout(sys.stderr):
            score = attempt(lambda: _score(self.fn(deepcopy(case), _turns.validate_python(deepcopy(turn)))))
        if isinstance(score, Raised):
            return {**said, "error": describe(score.error)}
        return {**said, "score": score.value, "reason": clean_text(score.reason)}


def load_check(name: str) -> Check:
    """The check that ``module:function`` names; the working directory is importable.

    Raises:
        ConfigError: There is no such function, or it cannot be called with a case and a turn.
    """
    label = f"--check {name}"
    with contextlib.redirect_stdout(sys.stderr):
        fn = load_named(label, name)
    try:
        signature_of(fn, label).bind(None, None)
    except TypeError:
        raise ConfigError(f"{label}: it must take two arguments: def check(case, turn)") from None
    return Check(name=name, fn=cast("Callable[[Case, TurnResult], object]", fn))


def _score(said: Any) -> Score:  # noqa: ANN401 - whatever it returned
    match said:
        case bool():
            return Score(float(said))
        case (value, reason):
            return Score(_score(value).value, str(reason))
        case _:
            item = getattr(said, "item", None)  # numpy.bool_, and other libraries' numbers, have it
            return _score(item()) if callable(item) else score_of(said)
