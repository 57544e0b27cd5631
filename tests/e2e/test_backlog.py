"""Many turns for one tool process: messages that wait in the queue are not sent again and again."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as NoConnection

from harness_worker.entrypoints.stack import open_stack
from harness_worker.wire import DEFAULT_TOOL_QUEUE
from tests.apps.e2e.journal import DIRECTORY_VARIABLE, scripts_file
from tests.e2e.conftest import APP
from tests.e2e.outsider import Outsider, Step, call
from tests.e2e.times import contents
from tests.stacks import ROOT

TURNS = 60
STEPS: tuple[Step, ...] = ([call("look", n=0, s=0.15), call("look", n=1, s=0.15), call("put", n=2, s=0.15)], "done")
CALLS = 3
MOST_A_CALL = 5
"""One message, and copies after 2, 6, 14 and 30 s: a turn has a minute."""


class Pushes:
    """How many messages were put into a queue, counted by watching the commands of its Redis."""

    count = 0

    def watch(self, client: Redis, queue: str, started: threading.Event) -> None:
        """Count until the client is closed."""
        with client.monitor() as monitor:  # pyright: ignore[reportUnknownMemberType]
            started.set()
            try:
                for seen in monitor.listen():  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
                    command: Any = seen
                    self.count += str(command["command"]).startswith(f"LPUSH {queue} ")
            except (NoConnection, ValueError, OSError):
                return


@contextmanager
def pushes(redis_url: str, queue: str) -> Generator[Pushes]:
    """Counts the messages put into ``queue`` while the context lasts."""
    found, started = Pushes(), threading.Event()
    with Redis.from_url(redis_url) as client:  # pyright: ignore[reportUnknownMemberType]
        thread = threading.Thread(target=found.watch, args=(client, queue, started), daemon=True)
        thread.start()
        assert started.wait(10)
        yield found


@pytest.mark.acceptance
@pytest.mark.timeout(400)
def test_long_queue_is_not_filled_with_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While sixty turns wait for one tool process, each call is sent only a few times, and all turns complete."""
    scripts_file(tmp_path).touch()
    monkeypatch.chdir(ROOT)
    env = {DIRECTORY_VARIABLE: str(tmp_path)}
    with open_stack(home=tmp_path / "home", app=APP, coordinators=8, tools=1, env=env) as stack:
        outsider = Outsider(stack, tmp_path)
        with pushes(stack.redis_url, DEFAULT_TOOL_QUEUE) as sent:
            turns = [outsider.post(*STEPS, budget={"timeout_s": 60}) for _ in range(TURNS)]
            ended = [outsider.end(turn_id) for turn_id in turns]
        outsider.http.close()
    assert [contents(turn) for turn in ended] == [['{"n":0}', '{"n":1}', "put 2"]] * TURNS
    print(f"{sent.count} messages for {TURNS * CALLS} calls: {sent.count / (TURNS * CALLS):.2f} a call")  # noqa: T201
    assert TURNS * CALLS <= sent.count <= TURNS * CALLS * MOST_A_CALL
