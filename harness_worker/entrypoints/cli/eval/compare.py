"""``harness compare``: what changed from one sweep of ``harness eval`` to another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from harness_worker.entrypoints.cli.eval.results_file import read_results
from harness_worker.entrypoints.cli.options import content_of
from harness_worker.entrypoints.cli.output import console, write_json
from harness_worker.entrypoints.plain import plain
from harness_worker.entrypoints.view.compare_report import changed_lines, comparison_table
from harness_worker.errors import ConfigError
from harness_worker.evaluation.comparison import comparison
from harness_worker.evaluation.results import Result


def compare(
    before: Annotated[
        Path, typer.Argument(metavar="BEFORE", help="Results that eval wrote by --out.", show_default=False)
    ],
    after: Annotated[
        Path,
        typer.Argument(
            metavar="AFTER",
            help="Results of a later sweep, or the same file for two of its agents.",
            show_default=False,
        ),
    ],
    *,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="The agent; given twice: the one in BEFORE, then the one in AFTER. [default: all in both]",
        ),
    ] = None,
    max_worse: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Exit with 1 if more cases than this pass less often.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print {comparisons}, on stdout.")] = False,
) -> None:
    """Compare two sweeps of eval, case by case: what passes less often, and every figure with its uncertainty.

    \b
        harness eval cases.jsonl --agent support --repeats 3 --out before.jsonl
        harness eval cases.jsonl --agent support --repeats 3 --out after.jsonl
        harness compare before.jsonl after.jsonl --max-worse 0

    Two agents of one sweep:

    \b
        harness compare results.jsonl results.jsonl --agent support-small --agent support

    Only cases that both have are compared. A difference is the mean over these cases, with 1.96 standard errors on
    either side: a difference smaller than that may be chance.

    Exits with 0; with 1 if more cases are worse than --max-worse allows; with 2 if a file is wrong.
    """  # noqa: D301 - click reads the \b
    files = [read_results(content_of(path), plain(str(path))) for path in (before, after)]
    agents = [list(dict.fromkeys(result.agent for result in results)) for results in files]
    pairs = _pairs(agent or [], *agents)
    if files[0] == files[1] and any(first == second for first, second in pairs):
        raise ConfigError("these are the same results: name two of their agents, each with --agent")
    found = [comparison(_of(files[0], first, before), _of(files[1], second, after)) for first, second in pairs]
    if apart := [one for one in found if not one["cases"]]:
        names = " and ".join(dict.fromkeys(one["agent"] for one in (apart[0]["before"], apart[0]["after"])))
        raise ConfigError(f"no case of {plain(names)} is in both files: compare sweeps over the same cases")
    if as_json:
        write_json({"comparisons": found})
    else:
        out = console()
        for one in found:
            out.print(comparison_table(one))
            for line in changed_lines(one):
                out.print(line, soft_wrap=True)
    worse = sum(len(one["worse"]) for one in found)
    raise typer.Exit(1 if max_worse is not None and worse > max_worse else 0)


def _pairs(wanted: Sequence[str], before: Sequence[str], after: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs of agents to compare, one from each file.

    Raises:
        ConfigError: More than two agents are named, or the files have none in common.
    """
    if len(wanted) > 2:
        raise ConfigError("--agent: name one agent, or the one in BEFORE and the one in AFTER")
    if wanted:
        return [(wanted[0], wanted[-1])]
    if len(before) == len(after) == 1:
        return [(before[0], after[0])]
    both = [(agent, agent) for agent in before if agent in after]
    if not both:
        there = f"{', '.join(before)} in the first, {', '.join(after)} in the second"
        raise ConfigError(f"the files have no agent in common ({plain(there)}): name one of each with --agent")
    return both


def _of(results: Sequence[Result], agent: str, path: Path) -> list[Result]:
    found = [result for result in results if result.agent == agent]
    if not found:
        there = ", ".join(dict.fromkeys(result.agent for result in results))
        raise ConfigError(f"{plain(str(path))} has no results of {plain(agent)}; it has those of {plain(there)}")
    return found
