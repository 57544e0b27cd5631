"""A conversation of twenty turns on two hosts' worth of workers, and its log of events without what differs each time.

``python -m tests.e2e.conversation`` holds it and records its log anew.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from typing import Final

import httpx

from harness_worker.adapters.embedded.ports import LOOPBACK, free_port
from harness_worker.adapters.sql.migrate import upgrade
from harness_worker.entrypoints.stack import StackInfo
from harness_worker.testing.postgres import postgres_service
from harness_worker.testing.services import valkey_service
from harness_worker.testing.waiting import wait_until
from tests.apps import conversation
from tests.apps.conversation.app import ARCHIVE
from tests.apps.e2e.journal import scripts_file
from tests.e2e.outsider import Json, Outsider, script_line
from tests.s3 import s3_service
from tests.stacks import HARNESS, ROOT

APP: Final = "tests.apps.conversation.app:registry"
RECORDED: Final = Path(__file__).with_name("conversation.jsonl")
HOSTS: Final[Mapping[str, str]] = {"north": ARCHIVE, "south": "tools"}
"""The hosts, each with the queue that its tool worker serves: what one of them stores the other has to read."""
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 40.0

_SAID: Final = Path(conversation.__file__).with_name("conversation.jsonl")
_SESSION: Final = "conversation"
_VERDICT: Final = '{"score": 0.9, "reason": "to the point"}'
_ARTIFACT: Final = re.compile(r"art_[0-9a-f]{32}")
_HASH: Final = re.compile(r"\b[0-9a-f]{64}\b")
_VARYING: Final = ("elapsed_ms", "render_hash")


class Conversation:
    """What Ann says in one session, turn after turn, and what comes of it.

    Args:
        outsider: Posts the turns.
        hosts: The working directories of the hosts, where their models find what to say.
    """

    def __init__(self, outsider: Outsider, hosts: Sequence[Path]) -> None:
        self.outsider = outsider
        self.turns: list[Json] = []
        self._hosts = hosts

    def hold(self) -> None:
        """Post each turn once the one before has ended."""
        for number, text in enumerate(_SAID.read_text().splitlines(), start=1):
            said: Json = json.loads(self._with_artifacts(text))
            script = f"turn-{number}"
            self._teach(script, said["steps"])
            metadata = {"script": script, "user": "ann"}
            body = {"agent": "desk", "input": said["user"], "session_id": _SESSION, "metadata": metadata}
            answer = self.outsider.http.post("/v1/turns", json=body)
            assert answer.status_code == 202, answer.text
            self.turns.append(self.outsider.end(answer.json()["id"]))

    @property
    def artifacts(self) -> list[str]:
        """The ids of the artifacts so far, in the order of their calls."""
        calls = [each for turn in self.turns for each in turn["calls"]]
        return [_ARTIFACT.findall(each["content"])[0] for each in calls if each["outcome"] == "ToolArtifactReference"]

    def log(self) -> list[str]:
        """The events of all turns, a line each, without ids, times and workers."""
        events = [
            {"turn": number, "type": event["type"], "data": event["data"]}
            for number, turn in enumerate(self.turns, start=1)
            for event in in_order(self.outsider.events(turn["id"]))
        ]
        return normalised(events)

    def _with_artifacts(self, text: str) -> str:
        for number, artifact_id in enumerate(self.artifacts, start=1):
            text = text.replace(f"ARTIFACT_{number}", artifact_id)
        return text

    def _teach(self, script: str, steps: Iterable[Json]) -> None:
        verdict = {"script": f"{script}/relevance", "kind": "judge", "step": 0, **script_line(_VERDICT)}
        text = "".join(json.dumps(line) + "\n" for line in (*_script_lines(script, steps), verdict))
        for host in self._hosts:
            file = scripts_file(host)
            fresh = file.with_suffix(".new")
            fresh.write_text((file.read_text() if file.exists() else "") + text)
            fresh.replace(file)


def _script_lines(script: str, steps: Iterable[Json]) -> Generator[Json]:
    """What the model says, numbered: a reflection or a summary belongs to the step that comes after it."""
    number = 0
    for step in steps:
        line = script_line(step)
        yield {"script": script, "step": number, **line}
        number += "kind" not in line


def in_order(events: Iterable[Json]) -> Generator[Json]:
    """A turn's events as they were committed, which is by step, but results told together by position."""
    for kind, group in groupby(events, key=lambda event: event["type"]):
        together = list(group)
        yield from sorted(together, key=_position) if kind == "tool.completed" else together


def _position(event: Json) -> tuple[int, ...]:
    return tuple(map(int, event["data"]["call_id"].split(".")))


def normalised(events: Iterable[Json]) -> list[str]:
    """Events as lines of JSON: no durations, no hashes of what holds dates and ids, and other hashes numbered."""
    numbers: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0], f"<hash {len(numbers) + 1}>")

    lines = (json.dumps(_timeless(event), ensure_ascii=False, sort_keys=True) for event in events)
    return [_HASH.sub(number, line) for line in lines]


def _timeless(event: Json) -> Json:
    return {**event, "data": {name: value for name, value in event["data"].items() if name not in _VARYING}}


@contextmanager
def open_conversation(directory: Path) -> Generator[Conversation]:
    """Two hosts with homes of their own, beside a gateway; they share Postgres, Valkey and a bucket, and no files."""
    with ExitStack() as stack:
        s3 = stack.enter_context(s3_service())
        redis_url = stack.enter_context(valkey_service())
        database_url = stack.enter_context(postgres_service()).create_database()
        upgrade(database_url)
        env = {
            **s3.env,
            "HARNESS_ARTIFACT_URL": f"{s3.new_bucket()}/artifacts",
            "HARNESS_DATABASE_URL": database_url,
            "HARNESS_REDIS_URL": redis_url,
            "HARNESS_LEASE_TTL_S": "30",  # a machine under load must not add events of its own
            "HARNESS_DEV_KEYLESS": "1",
            "PYTHONPATH": str(ROOT),
        }
        hosts = [_host(stack, directory / name, queue, env) for name, queue in HOSTS.items()]
        port = free_port()
        stack.enter_context(_process(directory / "gateway", ("gateway", "--port", str(port)), env))
        info = StackInfo(
            gateway_url=f"http://{LOOPBACK}:{port}",
            redis_url=redis_url,
            database_url=database_url,
            pid=os.getpid(),
            home=directory,
            processes=(),
        )
        outsider = Outsider(info, directory)
        stack.callback(outsider.http.close)
        _await_ready(hosts, outsider)
        yield Conversation(outsider, hosts)


def _host(stack: ExitStack, directory: Path, queue: str, env: Mapping[str, str]) -> Path:
    shared = ("--app", APP, "--home", "home", "--concurrency", "2")
    for role, narrowed in {"coordinator": (), "tools": ("--queues", queue)}.items():
        command = ("worker", "--role", role, *shared, "--ready-file", f"{role}.ready", *narrowed)
        stack.enter_context(_process(directory, command, env, log=f"{role}.log"))
    return directory


@contextmanager
def _process(directory: Path, command: Sequence[str], env: Mapping[str, str], log: str = "log") -> Generator[None]:
    directory.mkdir(exist_ok=True)
    with (directory / log).open("wb") as sink:
        process = subprocess.Popen(
            [*HARNESS, *command],
            env={**os.environ, **env},
            cwd=directory,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_ready(hosts: Sequence[Path], outsider: Outsider) -> None:
    for host in hosts:
        for role in ("coordinator", "tools"):
            wait_until((host / f"{role}.ready").exists, f"{role} of {host.name} to be ready", START_TIMEOUT_S)
    wait_until(lambda: _answers(outsider.http), "the gateway to answer", START_TIMEOUT_S)


def _answers(http: httpx.Client) -> bool:
    try:
        return http.get("/readyz").is_success
    except httpx.TransportError:
        return False


def record() -> None:
    """Hold the conversation, and keep its log as the one that others are compared with."""
    with tempfile.TemporaryDirectory() as directory, open_conversation(Path(directory)) as held:
        held.hold()
        RECORDED.write_text("".join(line + "\n" for line in held.log()))


if __name__ == "__main__":
    record()
