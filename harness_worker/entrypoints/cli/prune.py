"""``harness prune``: remove old sessions from the database."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from harness_worker.adapters.clock import SystemClock
from harness_worker.adapters.sql.pruning import Removed, SqlPruning
from harness_worker.entrypoints.cli.options import DAY_S, JournalHome, age_s
from harness_worker.entrypoints.cli.output import write, write_json
from harness_worker.entrypoints.cli.prune_sessions import prune as prune_sessions
from harness_worker.entrypoints.cli.prune_sessions import would_prune
from harness_worker.entrypoints.cli.standard_streams import tell
from harness_worker.entrypoints.journal import open_journal
from harness_worker.entrypoints.view.figures import counted
from harness_worker.errors import ConfigError
from harness_worker.wire import rfc3339


def prune(
    *,
    older_than: Annotated[
        str,
        typer.Option(
            metavar="AGE", help="Only what ended longer ago than this, in days or weeks: 30d, 8w.", show_default=False
        ),
    ],
    tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this tenant's sessions. [default: all tenants']")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    home: JournalHome = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print {before, dry_run, sessions, turns, memories}.")
    ] = False,
) -> None:
    """Remove sessions that ended long ago from the database, with their turns and everything that belongs to them.

    \b
        harness prune --older-than 30d --dry-run
        harness prune --older-than 30d

    A session is removed as a whole, once all its turns ended that long ago, because later turns read earlier ones. What
    is remembered about users stays. Artifacts are removed when they expire. Workers and the gateway may keep running,
    and the command may be stopped at any time: the next run removes the rest.

    Works on the database of HARNESS_DATABASE_URL, else on that of the stack in --home.
    """  # noqa: D301 - click reads the \b
    least_s = _least_age_s(older_than)
    with open_journal(home) as engine:
        pruning = SqlPruning(engine, tenant)
        before = pruning.now() - least_s
        if dry_run:
            gone = would_prune(pruning, before)
        else:
            gone = prune_sessions(pruning, SystemClock(), before, lambda so_far: tell(f"{_words(so_far)} so far"))
    if as_json:
        write_json({"before": rfc3339(before), "dry_run": dry_run, **asdict(gone)})
    else:
        write(f"{'would remove' if dry_run else 'removed'} {_words(gone)}: over since before {rfc3339(before)}")


def _least_age_s(older_than: str) -> float:
    given_s = age_s(older_than)
    if given_s is None or given_s < DAY_S:
        raise ConfigError(f"--older-than {older_than}: give days or weeks, at least 1d, such as 30d or 8w")
    return given_s


def _words(gone: Removed) -> str:
    memories = counted(gone.memories, "memory", "memories")
    return f"{counted(gone.sessions, 'session')}, {counted(gone.turns, 'turn')}, {memories}"
