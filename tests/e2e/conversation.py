"""A conversation of twenty turns on two hosts, and its log of events without whatever differs from run to run.

``python -m tests.e2e.conversation`` runs the conversation and records its log anew.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Final

from harness_worker.wire import DEFAULT_TOOL_QUEUE
from tests.apps import conversation
from tests.apps.conversation.app import ARCHIVE
from tests.apps.e2e.journal import scripts_file
from tests.e2e.outsider import Json, Outsider, script_line
from tests.e2e.two_hosts import open_hosts

APP: Final = "tests.apps.conversation.app:registry"
RECORDED: Final = Path(__file__).with_name("conversation.jsonl")
QUEUES: Final = {"north": ARCHIVE, "south": DEFAULT_TOOL_QUEUE}
"""What the hosts' tool workers serve: what one of them stores the other has to read."""

_SAID: Final = Path(conversation.__file__).with_name("conversation.jsonl")
_SESSION: Final = "conversation"
_VERDICT: Final = '{"score": 0.9, "reason": "to the point"}'
_ARTIFACT: Final = re.compile(r"art_[0-9a-f]{32}")
_HASH: Final = re.compile(r"\b[0-9a-f]{64}\b")
_VARYING: Final = ("elapsed_ms", "render_hash")


class Conversation:
    """The turns of one session of the user Ann, and what they leave behind.

    Args:
        outsider: Posts the turns.
        hosts: The working directories of the hosts, in which their scripted models look for their replies.
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
    """The model's replies with their step numbers; a reflection or summary has that of the step after it."""
    number = 0
    for step in steps:
        line = script_line(step)
        yield {"script": script, "step": number, **line}
        number += "kind" not in line


def in_order(events: Iterable[Json]) -> Generator[Json]:
    """A turn's events in the order of their commits, except that results of one commit are ordered by position."""
    for kind, group in groupby(events, key=lambda event: event["type"]):
        together = list(group)
        yield from sorted(together, key=_position) if kind == "tool.completed" else together


def _position(event: Json) -> tuple[int, ...]:
    return tuple(map(int, event["data"]["call_id"].split(".")))


def normalised(events: Iterable[Json]) -> list[str]:
    """Events as lines of JSON, without durations and hashes of dates or ids; other hashes become numbers."""
    numbers: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0], f"<hash {len(numbers) + 1}>")

    lines = (json.dumps(_timeless(event), ensure_ascii=False, sort_keys=True) for event in events)
    return [_HASH.sub(number, line) for line in lines]


def _timeless(event: Json) -> Json:
    return {**event, "data": {name: value for name, value in event["data"].items() if name not in _VARYING}}


@contextmanager
def open_conversation(directory: Path) -> Generator[Conversation]:
    """A conversation that can be held, on two hosts."""
    with open_hosts(directory, app=APP, queues=QUEUES) as (outsider, hosts):
        yield Conversation(outsider, hosts)


def record() -> None:
    """Hold the conversation, and save its log as the one that later runs are compared with."""
    with tempfile.TemporaryDirectory() as directory, open_conversation(Path(directory)) as held:
        held.hold()
        RECORDED.write_text("".join(line + "\n" for line in held.log()))


if __name__ == "__main__":
    record()
