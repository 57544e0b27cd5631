"""``harness migrate``: upgrade the database's tables to this version."""

from __future__ import annotations

from typing import Annotated

import typer

from harness_worker.adapters.sql.migrate import upgrade
from harness_worker.config import load_settings
from harness_worker.entrypoints.addresses import Addresses
from harness_worker.entrypoints.cli.options import JournalHome
from harness_worker.entrypoints.cli.output import write, write_json
from harness_worker.entrypoints.journal import journal_url


def migrate(
    *,
    home: JournalHome = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print {from, to}.")] = False,
) -> None:
    """Upgrade the database's tables to this version; may be run again, and by several at once.

    Works on the database of HARNESS_DATABASE_URL, else on that of the stack in --home.
    """
    before, after = upgrade(journal_url(Addresses(load_settings(home=home))))
    if as_json:
        write_json({"from": before, "to": after})
    elif before == after:
        write(f"the database is at {after} already")
    else:
        write(f"the database was brought from {before or 'nothing'} to {after}")
