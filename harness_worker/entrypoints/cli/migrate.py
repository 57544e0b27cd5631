"""``harness migrate``: upgrade the database's tables to this version."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness_worker.adapters.sql.migrate import upgrade
from harness_worker.config import load_settings
from harness_worker.entrypoints.cli.output import write, write_json
from harness_worker.entrypoints.stack.home import Home


def migrate(
    *,
    home: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the SQLite database lies if no other is named. [env: HARNESS_HOME]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Upgrade the tables in HARNESS_DATABASE_URL to this version; may be run again, and by several at once."""
    settings = load_settings(home=home)
    before, after = upgrade(settings.database_url or Home(settings.home).database_url)
    if as_json:
        write_json({"from": before, "to": after})
    elif before == after:
        write(f"the database is at {after} already")
    else:
        write(f"the database was brought from {before or 'nothing'} to {after}")
