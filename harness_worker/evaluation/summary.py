"""The figures of a sweep, for each agent, as one JSON document."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from harness_worker.evaluation.results import Result
from harness_worker.wire import JsonObject, TurnStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSweep:
    """A sweep of ``harness eval`` that has ended, with its results.

    Args:
        name: Its name.
        agents: The agents that were asked, in the order of the command.
        repeats: How many times each case was asked.
        threshold: The minimum share of each agent's cells that must pass.
        results: One result for each cell.
    """

    name: str
    agents: tuple[str, ...]
    repeats: int
    threshold: float
    results: tuple[Result, ...]

    @property
    def failures(self) -> tuple[Result, ...]:
        """The cells that did not pass."""
        return tuple(result for result in self.results if not result.passed)


def summary(sweep: EvalSweep) -> JsonObject:
    """The whole sweep; shares are from 0 to 1, times in seconds, costs in US dollars."""
    agents = [_of_agent(agent, sweep) for agent in sweep.agents]
    return {
        "sweep": sweep.name,
        "cases": len({result.case for result in sweep.results}),
        "repeats": sweep.repeats,
        "threshold": sweep.threshold,
        "passed": all(agent["pass_rate"] >= sweep.threshold for agent in agents),
        "agents": agents,
        "failures": [_failure(result) for result in sweep.failures],
    }


def _of_agent(agent: str, sweep: EvalSweep) -> JsonObject:
    results = [result for result in sweep.results if result.agent == agent]
    passed = sum(result.passed for result in results)
    return {
        "agent": agent,
        "cells": len(results),
        "passed": passed,
        "pass_rate": passed / len(results),
        **_by_case(results),
        "scores": _scores(results),
        "usage": _totals([result.usage for result in results]),
        "seconds": _seconds([result.seconds for result in results if result.seconds]),
        "not_completed": _not_completed(results),
    }


def _by_case(results: Sequence[Result]) -> JsonObject:
    """pass@k and pass^k: the shares of cases that passed in any of their k repeats, and in all of them."""
    cases = defaultdict[str, list[bool]](list)
    for result in results:
        cases[result.case].append(result.passed)
    return {
        "pass_at_k": sum(map(any, cases.values())) / len(cases),
        "pass_hat_k": sum(map(all, cases.values())) / len(cases),
    }


def _scores(results: Iterable[Result]) -> JsonObject:
    """For each judge, the mean of its scores, how many there are, and how many are missing."""
    given = defaultdict[str, list[float | None]](list)
    for result in results:
        for score in result.scores:
            given[score["judge"]].append(score["score"])
    return {judge: _mean(values) for judge, values in sorted(given.items())}


def _mean(values: Sequence[float | None]) -> JsonObject:
    there = [value for value in values if value is not None]
    mean = math.fsum(there) / len(there) if there else None
    return {"mean": mean, "scored": len(there), "missing": len(values) - len(there)}


def _totals(usages: Sequence[Mapping[str, float]]) -> JsonObject:
    """The usage of all cells, by name; a line of another version may name more than the others."""
    return {name: sum(usage.get(name, 0) for usage in usages) for name in dict.fromkeys(chain.from_iterable(usages))}


def _seconds(times: Sequence[float]) -> JsonObject:
    """Percentiles of the time that cells took, over those whose turns ran."""
    return {"p50": _percentile(times, 50), "p95": _percentile(times, 95)}


def _percentile(values: Sequence[float], percent: int) -> float | None:
    """A percentile by the nearest-rank method."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)] if ordered else None


def _not_completed(results: Iterable[Result]) -> JsonObject:
    """How many turns were not completed, by how they ended."""
    others = (result for result in results if result.status != TurnStatus.COMPLETED)
    hows = Counter(
        f"{result.status} ({result.stop_reason})" if result.stop_reason else result.status for result in others
    )
    return dict(hows.most_common())


def _failure(result: Result) -> JsonObject:
    named = {"agent", "case", "repeat", "turn_id", "status", "stop_reason", "why", "output_text"}
    return result.model_dump(mode="json", include=named)
