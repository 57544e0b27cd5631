"""Which real workers publish agents, on one database."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from harness_worker.testing.services import valkey_service
from harness_worker.testing.waiting import wait_until
from harness_worker.turn.publishing import EVERY_S
from tests.stacks import HARNESS, ROOT


@contextmanager
def worker(role: str, place: dict[str, str], directory: Path) -> Generator[None]:
    """A worker that takes messages; it is stopped at the end."""
    ready = directory / f"{role}.ready"
    with (directory / f"{role}.log").open("wb") as log:
        command = [
            *HARNESS,
            "worker",
            "--role",
            role,
            "--app",
            "tests.apps.trivial:registry",
            "--ready-file",
            str(ready),
        ]
        process = subprocess.Popen(command, env={**os.environ, **place}, cwd=ROOT, stdout=log, stderr=log)
    try:
        wait_until(ready.exists, f"the {role} worker to be ready", 60)
        yield
    finally:
        process.terminate()
        assert process.wait(40) == 0, (directory / f"{role}.log").read_text()


def test_coordinators_keep_their_agents_published_and_tool_workers_publish_none(
    sqlite_url: str, tmp_path: Path
) -> None:
    """A tool worker of an older version takes no agent back, and an agent that is missing is soon published again."""
    with valkey_service() as redis_url, closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as database:

        def published() -> list[tuple[str]]:
            return database.execute("SELECT name FROM agents").fetchall()

        place = {"HARNESS_DATABASE_URL": sqlite_url, "HARNESS_REDIS_URL": redis_url}
        with worker("tools", place, tmp_path):
            assert published() == []
        with worker("coordinator", place, tmp_path):
            assert published() == [("trivial",)]
            with database:
                database.execute("DELETE FROM agents")
            wait_until(lambda: published() == [("trivial",)], "the agent to be published again", EVERY_S + 20)
