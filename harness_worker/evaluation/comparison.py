"""Compares two sweeps case by case; the figures are one JSON document."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from harness_worker.core.budget import TOKEN_CLASSES
from harness_worker.evaluation.results import Result
from harness_worker.wire import JsonObject

_Values: TypeAlias = Mapping[str, float]
"""One figure for each case that has it: the mean over the case's repeats."""

PASSED: Final = "passed"
_FIGURES: Final[Mapping[str, Callable[[Result], float]]] = {
    PASSED: lambda result: float(result.passed),
    "tokens": lambda result: sum(result.usage[name] for name in TOKEN_CLASSES),
    "dollars": lambda result: result.usage["dollars"],
    "seconds": lambda result: result.seconds,
}


def comparison(before: Sequence[Result], after: Sequence[Result]) -> JsonObject:
    """One agent's results in two sweeps, or two agents' results, over the cases that both have.

    Every figure is the mean over cases of the mean over a case's repeats. ``standard_error`` is that of the mean
    paired difference, ``None`` with fewer than two cases (E. Miller, *Adding Error Bars to Evals*, 2024).

    Args:
        before: Results of one agent, at least one.
        after: Results to compare them with, at least one.
    """
    first, second = _by_case(before), _by_case(after)
    shared = [case for case in first if case in second]
    old = [result for case in shared for result in first[case]]
    new = [result for case in shared for result in second[case]]
    passed = _means(old, _FIGURES[PASSED]), _means(new, _FIGURES[PASSED])
    return {
        "before": {"sweep": before[0].sweep, "agent": before[0].agent},
        "after": {"sweep": after[0].sweep, "agent": after[0].agent},
        "cases": len(shared),
        "only_before": [case for case in first if case not in second],
        "only_after": [case for case in second if case not in first],
        "expected_otherwise": [case for case in shared if first[case][-1].expected != second[case][-1].expected],
        "figures": {name: _paired(_means(old, figure), _means(new, figure)) for name, figure in _FIGURES.items()},
        "scores": {judge: _paired(_scores(old, judge), _scores(new, judge)) for judge in _judges(old, new)},
        "worse": [_changed(case, first, second) for case in shared if passed[1][case] < passed[0][case]],
        "better": [_changed(case, first, second) for case in shared if passed[1][case] > passed[0][case]],
    }


def _by_case(results: Sequence[Result]) -> Mapping[str, list[Result]]:
    cases = defaultdict[str, list[Result]](list)
    for result in results:
        cases[result.case].append(result)
    return cases


def _means(results: Sequence[Result], figure: Callable[[Result], float]) -> _Values:
    return {case: statistics.fmean(map(figure, found)) for case, found in _by_case(results).items()}


def _judges(old: Sequence[Result], new: Sequence[Result]) -> list[str]:
    """The judges that gave scores in both."""
    before, after = ({score["judge"] for result in results for score in result.scores} for results in (old, new))
    return sorted(before & after)


def _scores(results: Sequence[Result], judge: str) -> _Values:
    given = {case: list(_given(found, judge)) for case, found in _by_case(results).items()}
    return {case: statistics.fmean(scores) for case, scores in given.items() if scores}


def _given(results: Sequence[Result], judge: str) -> Iterator[float]:
    for result in results:
        for score in result.scores:
            if score["judge"] == judge and score["score"] is not None:
                yield score["score"]


def _paired(before: _Values, after: _Values) -> JsonObject:
    """The means over the cases that both have, and the mean of their differences."""
    cases = [case for case in before if case in after]
    differences = [after[case] - before[case] for case in cases]
    enough = len(differences) > 1
    return {
        "before": statistics.fmean(before[case] for case in cases) if cases else None,
        "after": statistics.fmean(after[case] for case in cases) if cases else None,
        "difference": statistics.fmean(differences) if cases else None,
        "standard_error": statistics.stdev(differences) / math.sqrt(len(differences)) if enough else None,
        "cases": len(cases),
    }


def _changed(case: str, before: Mapping[str, list[Result]], after: Mapping[str, list[Result]]) -> JsonObject:
    """A case that passes more or less often than before, with its first failure in the later results."""
    failure = next((result for result in after[case] if not result.passed), None)
    return {
        "case": case,
        "before": _times(before[case]),
        "after": _times(after[case]),
        "turn_id": failure.turn_id if failure else None,
        "why": list(failure.why) if failure else [],
    }


def _times(results: Sequence[Result]) -> JsonObject:
    return {"passed": sum(result.passed for result in results), "cells": len(results)}
