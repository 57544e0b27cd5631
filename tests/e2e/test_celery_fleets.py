"""Applications that have a Celery app of their own, in workers of the harness, which are Celery workers too."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import httpx2
import pytest
from celery import Celery
from redis import Redis

from harness_worker import GatewayClient
from harness_worker.entrypoints.stack import StackInfo, open_stack
from harness_worker.testing.services import valkey_service
from harness_worker.testing.waiting import wait_until
from tests.stacks import HARNESS, ROOT

PAGE = (ROOT / "docs" / "how-to" / "call-a-celery-fleet.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
APP = "tests.apps.fleet:registry"
ASKED = {"turn start", "tool", "tool in a thread", "post tool use", "judge"}


@pytest.fixture(scope="module")
def fleet_url() -> Generator[str]:
    """The broker and result backend of the application's own fleet, in which no worker runs."""
    with valkey_service() as url:
        yield url


@pytest.fixture(scope="module")
def stack(fleet_url: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[StackInfo]:
    """A stack that serves the application."""
    home = tmp_path_factory.mktemp("fleet") / "home"
    with open_stack(home=home, app=APP, coordinators=2, tools=1, env={"FLEET_URL": fleet_url}) as stack:
        yield stack


def messages(url: str, task: str) -> set[str]:
    """The arguments of each message for a task that waits in Celery's default queue, as Celery shows them."""
    with Redis.from_url(url) as redis:  # pyright: ignore[reportUnknownMemberType]
        headers = [json.loads(each)["headers"] for each in redis.lrange("celery", 0, -1)]
    return {each["argsrepr"] for each in headers if each["task"] == task}


def test_shared_tasks_go_to_the_broker_of_the_application(stack: StackInfo, fleet_url: str) -> None:
    """A tool, its threads, hooks and judges send to the application's broker alone, and can wait for results."""
    with GatewayClient(stack.gateway_url) as client:
        turn = client.wait(client.create_turn("clerk", "Pay.")["id"], 60)
    assert [(call["outcome"], call["content"]) for call in turn["calls"]] == [("ToolExecutionResult", "asked")]
    scores = f"{stack.gateway_url}/v1/turns/{turn['id']}/scores"
    (score,) = wait_until(
        lambda: [each for each in httpx2.get(scores, timeout=30).json()["data"] if each["at"]], "its score", 60
    )
    assert score["reason"] == "asked", score
    assert messages(fleet_url, "fleet.pay") == {f"({who!r},)" for who in ASKED}
    assert messages(stack.redis_url, "fleet.pay") == set()


def test_workers_serve_no_task_of_the_application(stack: StackInfo) -> None:
    """The harness's workers register none of the application's tasks, so they would run none sent to them."""
    outside = Celery("outside", broker=stack.redis_url, set_as_current=False)

    def served() -> set[str] | None:
        registered: dict[str, list[str]] = outside.control.inspect(timeout=2).registered() or {}
        found = {task for tasks in registered.values() for task in tasks}
        return found if {"tool.order", "turn.advance"} <= found else None

    tasks = wait_until(served, "the workers to say what they serve", 60)
    assert not [task for task in tasks if task.startswith("fleet.")]


def test_page_does_what_it_says(tmp_path: Path) -> None:
    """In the page's example, a tool asks a fleet served by a plain Celery worker, and returns the task's result."""
    blocks = BLOCK.findall(PAGE)
    for name, (_, text) in zip(("fleet.py", "payments.py", "payments.jsonl"), blocks[:3], strict=True):
        (tmp_path / name).write_text(text)
    serve, ask, printed = [text for _, text in blocks[3:]]
    serve = serve.rstrip().replace(".venv/bin/celery", f"exec {sys.executable} -m celery") + " --concurrency 1"
    ask = ask.replace(".venv/bin/harness", " ".join(HARNESS))
    with valkey_service() as url:
        env = {**os.environ, "FLEET_URL": url, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(["bash", "-euc", serve], cwd=tmp_path, env=env) as fleet:
            try:
                told = subprocess.run(
                    ["bash", "-euc", ask],
                    cwd=tmp_path,
                    env=env,
                    capture_output=True,
                    text=True,
                    timeout=90,
                    check=False,
                )
            finally:
                fleet.terminate()
    assert told.returncode == 0, told.stderr
    (call,) = json.loads(told.stdout.splitlines()[-1])["calls"]
    assert (call["outcome"], call["content"]) == ("ToolExecutionResult", printed.strip())
