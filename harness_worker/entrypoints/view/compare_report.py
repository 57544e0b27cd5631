"""Reports for people what changed from one sweep to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from harness_worker.entrypoints.plain import one_line
from harness_worker.entrypoints.view.figures import counted
from harness_worker.wire import JsonObject

SHOWN: Final = 20
"""How many cases of a kind are listed."""

_Z: Final = 1.96
"""Standard errors on either side of a difference: an interval of 95 %."""


def comparison_table(found: JsonObject) -> Table:
    """One comparison's figures, as :func:`~harness_worker.evaluation.comparison.comparison` returns them."""
    drawn = Table(title=Text(f"{one_line(_named(found))}: {counted(found['cases'], 'case')}"))
    drawn.add_column("mean of a cell")
    for name in ("before", "after", "difference"):
        drawn.add_column(name, justify="right")
    figures = found["figures"]
    drawn.add_row("passed", *_shown(figures["passed"], "{:.1f} %", 100))
    for judge, score in found["scores"].items():
        drawn.add_row(Text(f"score of {one_line(judge)}"), *_shown(score, "{:.2f}"))
    drawn.add_row("tokens", *_shown(figures["tokens"], "{:,.0f}"))
    drawn.add_row("dollars", *_shown(figures["dollars"], "{:.4f}"))
    drawn.add_row("seconds", *_shown(figures["seconds"], "{:.2f}"))
    return drawn


def changed_lines(found: JsonObject) -> Iterator[Text]:
    """The cases that pass less often, with the reason, those that pass more often, and those that were not compared."""
    yield from _cases(found["worse"], "worse", "red")
    yield from _cases(found["better"], "better", "green")
    if otherwise := found["expected_otherwise"]:
        yield Text(f"{counted(len(otherwise), 'case')} expected something else before: {_names(otherwise)}")
    for file in ("before", "after"):
        if only := found[f"only_{file}"]:
            yield Text(f"only {file}, and not compared: {_names(only)}")


def _named(found: JsonObject) -> str:
    first, second = found["before"], found["after"]
    if first["agent"] == second["agent"]:
        return f"{first['agent']}, {first['sweep']} and {second['sweep']}"
    return f"{first['agent']} and {second['agent']}"


def _shown(figure: JsonObject, pattern: str, scale: float = 1) -> tuple[str, str, str]:
    if not figure["cases"]:
        return "-", "-", "-"
    before, after = (pattern.format(figure[name] * scale) for name in ("before", "after"))
    difference = f"{'+' if figure['difference'] > 0 else ''}{pattern.format(figure['difference'] * scale)}"
    error = figure["standard_error"]
    return before, after, difference if error is None else f"{difference} ± {pattern.format(_Z * error * scale)}"


def _cases(changed: Sequence[JsonObject], how: str, style: str) -> Iterator[Text]:
    for case in changed[:SHOWN]:
        times = " then ".join(f"{case[name]['passed']}/{case[name]['cells']}" for name in ("before", "after"))
        turn = f" (turn {case['turn_id']})" if how == "worse" and case["turn_id"] else ""
        yield Text(f"{how}: {one_line(case['case'])}, passed {times}{turn}", style=style)
        if how == "worse":
            yield from (Text(f"  {one_line(why)}") for why in case["why"])
    if changed[SHOWN:]:
        yield Text(f"… and {counted(len(changed) - SHOWN, 'more case')} {how}: --json has all")


def _names(cases: Sequence[str]) -> str:
    listed = ", ".join(one_line(case) for case in cases[:SHOWN])
    return f"{listed}, …" if cases[SHOWN:] else listed
