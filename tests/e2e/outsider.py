"""A client that reaches a running stack only over HTTP, and can read the journals that the stack's tools write."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
from kombu import Connection

from harness_worker.entrypoints.stack import StackInfo
from harness_worker.testing.waiting import wait_until
from tests.apps.e2e import journal
from tests.apps.e2e.hooks import hooks_file
from tests.e2e.soundness import check_sound

Json: TypeAlias = dict[str, Any]
Step: TypeAlias = str | Sequence[tuple[str, Any]] | Mapping[str, Any]

FINAL = ("completed", "incomplete", "failed", "cancelled")
END_TIMEOUT_S = 200.0


def call(tool: str, **arguments: object) -> tuple[str, Any]:
    """A tool call as a scripted model makes it."""
    return tool, arguments


def aside(kind: str, step: int, text: str, **usage: int) -> Json:
    """A script line with a reflection or a summary, made before that step."""
    return {"kind": kind, "step": step, "content": [{"type": "text", "text": text}], "usage": usage}


def long(tokens: int) -> Json:
    """A step whose prompt counts this many tokens."""
    use: dict[str, Any] = {"type": "tool_use", "id": "u", "name": "look", "input": {"n": tokens}}
    return {"content": [use], "usage": {"input_tokens": tokens}}


class Outsider:
    """Posts turns and reads them.

    Args:
        stack: The stack to post to.
        directory: Where the suite's scripts and the tools' journals are.
    """

    def __init__(self, stack: StackInfo, directory: Path) -> None:
        self.stack = stack
        self.broker_url = stack.broker_url or stack.redis_url
        self.directory = directory
        self.http = httpx2.Client(base_url=stack.gateway_url, timeout=30, trust_env=False)

    def body(self, *steps: Step, agent: str = "worker", **options: object) -> Json:
        """The body to post for a turn whose model replies with ``steps``: texts, calls, or whole script lines."""
        script = add_script(self.directory, steps)
        return {"agent": agent, "input": "go", "metadata": {"script": script}, **options}

    def post(self, *steps: Step, agent: str = "worker", **options: object) -> str:
        """Post a turn; returns its id."""
        answer = self.http.post("/v1/turns", json=self.body(*steps, agent=agent, **options))
        assert answer.status_code == 202, answer.text
        return answer.json()["id"]

    def lose_messages(self, queue: str) -> int:
        """Delete all messages that wait in a queue; returns their number."""
        with Connection(self.broker_url) as broker:
            channel: Any = broker.default_channel
            return channel.queue_purge(queue)

    def turn(self, turn_id: str) -> Json:
        """The turn with its messages, as it is now."""
        answer = self.http.get(f"/v1/turns/{turn_id}", params={"include": "messages"})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def end(self, turn_id: str, timeout_s: float = END_TIMEOUT_S) -> Json:
        """The turn once it has ended, checked against the rules that hold for every turn."""

        def ended() -> Json | None:
            turn = self.turn(turn_id)
            return turn if turn["status"] in FINAL else None

        turn = wait_until(ended, f"turn {turn_id} to end", timeout_s, interval_s=0.1)
        check_sound(turn, self.events(turn_id), self.journal(turn_id))
        return turn

    def run(self, *steps: Step, agent: str = "worker", **options: object) -> Json:
        """Post a turn and wait for its end."""
        return self.end(self.post(*steps, agent=agent, **options))

    def events(self, turn_id: str) -> list[Json]:
        """Every event of a turn, page by page."""
        found: list[Json] = []
        after: int | None = 0
        while after is not None:
            answer = self.http.get(f"/v1/turns/{turn_id}/events", params={"after": after, "limit": 7})
            assert answer.status_code == 200, answer.text
            found += answer.json()["data"]
            after = answer.json()["next"]
        return found

    def journal(self, turn_id: str) -> list[Json]:
        """The lines that the turn's tools wrote to their journal."""
        return journal.read(self.directory, turn_id)

    def entries(self, turn_id: str, call_id: str | None = None) -> list[Json]:
        """The journal's lines about bodies that were entered, of one call or of all."""
        lines = [line for line in self.journal(turn_id) if line["event"] == "entered"]
        return [line for line in lines if call_id in (None, line["call"])]

    def give(self, word: str) -> None:
        """Let whoever waits for the word go on: calls of ``await_word``, or a turn of the agent ``held``."""
        journal.word_file(self.directory, word).touch()

    def hold(self, word: str) -> str:
        """Post a turn that keeps a thread of the coordinator until the word is given; returns its id."""
        body = self.body("done", agent="held")
        answer = self.http.post("/v1/turns", json={**body, "metadata": {**body["metadata"], "word": word}})
        assert answer.status_code == 202, answer.text
        turn_id = answer.json()["id"]
        wait_until(hooks_file(self.directory, turn_id).exists, f"turn {turn_id} to keep a thread", 60)
        return turn_id

    def await_entry(self, turn_id: str, call_id: str) -> Json:
        """Wait until a call's body is running."""

        def entry() -> Json | None:
            return next(iter(self.entries(turn_id, call_id)), None)

        return wait_until(entry, f"call {call_id} of {turn_id} to run", 60)


def add_script(directory: Path, steps: Sequence[Step]) -> str:
    """Add a script to the suite's file, where every model finds it at once; returns its name."""
    text = json.dumps(steps)
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    add_lines(directory, ({"script": name, "step": number, **script_line(step)} for number, step in enumerate(steps)))
    return name


def add_lines(directory: Path, lines: Iterable[Mapping[str, Any]], file: Path | None = None) -> None:
    """Add lines to a file of scripts, where every model finds them at once; lines already in it are left out."""
    file = file or journal.scripts_file(directory)
    known = file.read_text() if file.exists() else ""
    added = [text for line in lines if (text := json.dumps(line) + "\n") not in known]
    if added:
        fresh = file.with_suffix(".new")
        fresh.write_text(known + "".join(added))
        fresh.replace(file)


def script_line(step: Step) -> Mapping[str, Any]:
    """A reply of a scripted model, as a line of its script."""
    if isinstance(step, str):
        return {"content": [{"type": "text", "text": step}]}
    if isinstance(step, Mapping):
        return step
    return {
        "content": [
            {"type": "tool_use", "id": f"toolu_{position}", "name": tool, "input": arguments}
            for position, (tool, arguments) in enumerate(step)
        ]
    }


class Posted:
    """Turns that were all posted at once, so that their waiting times overlap; each is awaited when first asked for.

    Args:
        outsider: Posts them.
        bodies: The bodies to post, by name.
    """

    def __init__(self, outsider: Outsider, bodies: Mapping[str, Json]) -> None:
        self._outsider = outsider
        self._ids = {name: self._post(body) for name, body in bodies.items()}
        self._ended: dict[str, Json] = {}

    def __getitem__(self, name: str) -> Json:
        """The turn of that name, once it is over."""
        if name not in self._ended:
            self._ended[name] = self._outsider.end(self._ids[name])
        return self._ended[name]

    def _post(self, body: Json) -> str:
        answer = self._outsider.http.post("/v1/turns", json=body)
        assert answer.status_code == 202, answer.text
        return answer.json()["id"]
