"""The page on operating shows commands that start the parts of a fleet one by one, as on several hosts."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from harness_worker.adapters.embedded.ports import free_port
from harness_worker.testing.postgres import postgres_service
from harness_worker.testing.services import valkey_service
from harness_worker.testing.waiting import wait_until
from tests.stacks import HARNESS, ROOT, run_harness

PAGE: Final = (ROOT / "docs" / "how-to" / "operate.md").read_text()
SECTION: Final = PAGE.partition("\n## Run on several hosts\n")[2].partition("\n## ")[0]
SETTINGS, PREPARE, START = re.findall(r"^```sh\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)


def test_parts_start_as_the_page_says(tmp_path: Path) -> None:
    """With the page's settings, and once tables and a key exist, the page's ``doctor`` finds all parts well."""
    with valkey_service() as redis_url, postgres_service() as postgres, ExitStack() as running:
        settings = {
            "HARNESS_DATABASE_URL": postgres.create_database(),
            "HARNESS_REDIS_URL": redis_url,
            "HARNESS_ARTIFACT_URL": (tmp_path / "artifacts").as_uri(),
        }
        assert re.findall(r"^export (\w+)=", SETTINGS, re.MULTILINE) == list(settings)
        port = str(free_port())
        gateway = {"HARNESS_GATEWAY_URL": f"http://127.0.0.1:{port}", "HARNESS_HOME": str(tmp_path / "home")}
        prepared = [run_harness(*arguments, env=settings | gateway) for arguments in commands(PREPARE)]
        assert [ran.returncode for ran in prepared] == [0, 0], prepared
        env = {**settings, **gateway, "HARNESS_API_KEY": prepared[-1].stdout.strip()}
        *parts, look = commands(START)
        for number, arguments in enumerate(parts):
            more = ["--port", port] if arguments[0] == "gateway" else []
            running.enter_context(started([*arguments, *more], env, tmp_path / f"{number}.log"))
        wait_until(lambda: run_harness(*look, env=env).returncode == 0, "doctor to find all parts well", 60)


def commands(block: str) -> list[list[str]]:
    """The arguments of each ``harness`` command in a block, with an app that exists here."""
    lines = [line.removeprefix(".venv/bin/harness ") for line in block.splitlines()]
    return [shlex.split(line.replace("my_agents:registry", "tests.apps.trivial:registry")) for line in lines]


@contextmanager
def started(arguments: list[str], env: Mapping[str, str], log: Path) -> Generator[None]:
    """A part of the fleet that runs until the context ends."""
    with log.open("wb") as sink:
        part = subprocess.Popen([*HARNESS, *arguments], cwd=ROOT, env={**os.environ, **env}, stdout=sink, stderr=sink)
    try:
        yield
    finally:
        part.terminate()
        assert part.wait(timeout=40) == 0, log.read_text()
