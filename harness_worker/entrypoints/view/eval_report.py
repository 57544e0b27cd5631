"""Reports the results of a sweep over a user's cases for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from harness_worker.entrypoints.plain import one_line
from harness_worker.entrypoints.view.figures import counted, tokens_of
from harness_worker.wire import JsonObject, TurnStatus

SHOWN: Final = 20
"""How many failures are listed."""


def agent_table(figures: JsonObject, repeats: int) -> Table:
    """One agent's figures, as :func:`~harness_worker.evaluation.summary.summary` returns them."""
    drawn = Table(title=Text(f"{figures['agent']}: {figures['passed']}/{figures['cells']} cells passed"))
    drawn.add_column("what")
    drawn.add_column("found", justify="right")
    for what, found in _rows(figures, repeats):
        drawn.add_row(Text(one_line(what)), Text(found))
    return drawn


def failure_lines(
    failures: Sequence[JsonObject], options: str = "", restart: str | None = None, retry: str | None = None
) -> Iterator[Text]:
    """The first failures with their reasons, and how to see more.

    Args:
        failures: As :func:`~harness_worker.evaluation.summary.summary` returns them.
        options: Those by which a command finds their stack, each after a space.
        restart: The command that restarts their stack, if it is gone.
        retry: The options that, added to the sweep's command, ask again what failed or was cancelled, if it can be.
    """
    for failure in failures[:SHOWN]:
        named = f"{failure['case']} of {failure['agent']}, repeat {failure['repeat']}"
        turn = f" (turn {failure['turn_id']})" if failure["turn_id"] else ""
        yield Text(f"{one_line(named)}{turn}", style="red")
        yield from (Text(f"  {one_line(why)}") for why in failure["why"])
    if failures[SHOWN:]:
        yield Text(f"… and {counted(len(failures) - SHOWN, 'more failure')}: --json and --out have all")
    if any(failure["turn_id"] for failure in failures):
        first = f", once its stack runs again: {one_line(restart)}" if restart else ""
        yield Text(f"{one_line(f'harness turns show TURN{options}')} says what a turn did{first}", style="dim")
    if retry and any(failure["status"] in (TurnStatus.FAILED, TurnStatus.CANCELLED) for failure in failures):
        said = f"the same command with {one_line(retry)} asks cells again whose turns failed or were cancelled"
        yield Text(said, style="dim")


def _rows(figures: JsonObject, repeats: int) -> Iterator[tuple[str, str]]:
    yield "passed", _percent(figures["pass_rate"])
    if repeats > 1:
        yield f"pass@{repeats}: cases that passed once or more", _percent(figures["pass_at_k"])
        yield f"pass^{repeats}: cases that passed every time", _percent(figures["pass_hat_k"])
    for judge, score in figures["scores"].items():
        yield f"mean score of {judge}", _score(score)
    usage = figures["usage"]
    yield "tokens", f"{tokens_of(usage):,}"
    yield "dollars", f"{usage['dollars']:.4f}"
    yield "model calls", f"{usage['steps']:,}"
    yield "tool calls", f"{usage['tool_calls']:,}"
    yield "seconds, p50 and p95", " and ".join(map(_seconds, (figures["seconds"]["p50"], figures["seconds"]["p95"])))
    yield from ((f"turns {how}", f"{count:,}") for how, count in figures["not_completed"].items())


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _score(score: JsonObject) -> str:
    mean = "none" if score["mean"] is None else f"{score['mean']:.2f}"
    return f"{mean} ({score['missing']:,} missing)" if score["missing"] else mean


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f}"
