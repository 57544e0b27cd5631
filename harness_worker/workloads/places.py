"""The paths of a workload's script and state, the same for workers and for the sweep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness_worker.config import Settings
from harness_worker.urls import in_url


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """A workload's files and database.

    Args:
        script: The scripted model's JSONL file.
        database_url: The database in which tools keep their state, apart from the harness's own tables.
    """

    script: Path
    database_url: str


def places(settings: Settings, workload: str) -> Places:
    """The places of one workload, below ``HARNESS_HOME``.

    If ``HARNESS_DATABASE_URL`` names a Postgres, the state is there, in tables of its own (``wl_…``); otherwise it is
    in an SQLite file of its own.
    """
    home = settings.home.expanduser().absolute()
    given = settings.database_url or ""
    own = f"sqlite:///{in_url(home)}/workload.db"
    return Places(
        script=home / "workloads" / f"{workload}.jsonl",
        database_url=given if given.startswith("postgres") else own,
    )


def home_of(script: Path) -> Path:
    """The home directory that :func:`places` chose this script's path in."""
    return script.parent.parent
