"""The README's commands, and examples of other pages with the README's agent, run as they are written.

Only the port differs, so that several stacks can run at the same time.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from harness_worker.adapters.embedded.ports import free_port
from harness_worker.entrypoints.stack import running_stack
from harness_worker.testing.waiting import wait_until
from tests.stacks import ROOT

BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
README: Final = (ROOT / "README.md").read_text()
OPENAI_PAGE: Final = (ROOT / "docs" / "how-to" / "use-the-openai-client.md").read_text()
CELERY_PAGE: Final = (ROOT / "docs" / "how-to" / "enqueue-from-celery.md").read_text()
CLIENT_PAGE: Final = (ROOT / "docs" / "how-to" / "call-from-python.md").read_text()
BATCHES_PAGE: Final = (ROOT / "docs" / "how-to" / "run-batches.md").read_text()
APPROVALS_PAGE: Final = (ROOT / "docs" / "how-to" / "approve-calls.md").read_text()
OPERATING_PAGE: Final = (ROOT / "docs" / "how-to" / "operate.md").read_text()
WEBHOOKS_PAGE: Final = (ROOT / "docs" / "how-to" / "webhooks.md").read_text()
UP: Final = ".venv/bin/harness up --app notes:registry\n"
PORT: Final = "8700"
pytestmark = pytest.mark.xdist_group("readme")


def block_with(text: str) -> str:
    """The only block of commands that contains ``text``."""
    (found,) = [body for kind, body in BLOCK.findall(README) if kind == "sh" and text in body]
    return found


class Terminal:
    """A shell in a directory that has the README's files and an installed harness.

    Args:
        directory: The directory.
        port: The port to use instead of the README's.
    """

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self._port = str(port)
        files = {"python": "notes.py", "jsonl": "notes.jsonl"}
        for kind, body in BLOCK.findall(README):
            if kind in files:
                (directory / files[kind]).write_text(body)
        harness = directory / ".venv" / "bin" / "harness"
        harness.parent.mkdir(parents=True)
        harness.write_text(f'#!/bin/sh\nexec {sys.executable} -m harness_worker.entrypoints.cli "$@"\n')
        harness.chmod(0o755)

    def start(self, commands: str, **options: Any) -> subprocess.Popen[str]:  # noqa: ANN401 - Popen's own
        """Start commands in a shell that stops at the first one that fails."""
        text = commands.replace(PORT, self._port)
        env = {**os.environ, "PYTHONPATH": str(ROOT), "NO_PROXY": "*"}
        return subprocess.Popen(["bash", "-euc", text], cwd=self.directory, env=env, text=True, **options)

    def run(self, commands: str) -> str:
        """The output of commands, which must succeed."""
        with self.start(commands, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as shell:
            out, err = shell.communicate(timeout=60)
        assert shell.returncode == 0, out + err
        return out


@contextmanager
def terminal_in(directory: Path, command: str = UP) -> Generator[Terminal]:
    """A terminal for commands beside a running stack, which ``command`` starts in a terminal of its own."""
    port = free_port()
    terminal = Terminal(directory, port)
    assert block_with("harness up ") == UP
    log = terminal.directory / "up.log"
    with log.open("w") as sink:
        up = terminal.start(f"exec {command.strip()} --port {port}", stdout=sink, stderr=sink)
    try:
        home = terminal.directory / ".harness"
        wait_until(lambda: up.poll() is not None or running_stack(home), "the stack to be ready", 60)
        assert up.poll() is None, log.read_text()
        yield terminal
    finally:
        up.terminate()
        assert up.wait(40) == 0, log.read_text()


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Generator[Terminal]:
    """The terminal of a reader of the README."""
    with terminal_in(tmp_path_factory.mktemp("readme")) as terminal:
        yield terminal


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Generator[Terminal]:
    """A terminal with a stack of its own, for pages that post turns: the README's commands use the newest turn."""
    with terminal_in(tmp_path_factory.mktemp("beside")) as terminal:
        yield terminal


def answered(terminal: Terminal) -> dict[str, Any]:
    """The answer to the README's post; on a slow machine the post is repeated, until its turn has ended."""

    def ended() -> dict[str, Any] | None:
        turn = json.loads(terminal.run(block_with("Prefer: wait=20")))
        return turn if turn["status"] == "completed" else None

    return wait_until(ended, "the README's turn to end", 60)


@pytest.fixture(scope="module")
def turn(terminal: Terminal) -> dict[str, Any]:
    """The turn that the README posts and waits for."""
    return answered(terminal)


def seqs(stream: str) -> list[int]:
    """The ids of the events of a stream."""
    return [int(found) for found in re.findall(r"^id: (\d+)$", stream, re.MULTILINE)]


def test_readme_post_waits_for_its_turn_and_may_be_repeated(terminal: Terminal, turn: dict[str, Any]) -> None:
    """The answer is the whole turn, and posting again with the same key gives the same turn."""
    assert (turn["status"], turn["output_text"]) == ("completed", "Noted: you like Assam.")
    assert [(call["tool"], call["wave"], call["outcome"]) for call in turn["calls"]] == [
        ("find_notes", 0, "ToolExecutionResult"),
        ("find_notes", 0, "ToolExecutionResult"),
        ("add_note", 1, "ToolExecutionResult"),
    ]
    assert json.loads(terminal.run(block_with("Prefer: wait=20"))) == turn


def test_readme_follows_resumes_and_cancels(terminal: Terminal, turn: dict[str, Any]) -> None:
    """The newest turn's events are shown from the first, then from where the example resumes; then it is cancelled."""
    told = terminal.run(block_with("Last-Event-ID: 9"))
    streams, newline, answer = told.rpartition("\n\n")
    whole, again = newline.join([streams, ""]).split(": open\n\n")[1:]
    ids = seqs(whole)
    assert ids == list(range(1, len(ids) + 1))
    assert "event: turn.completed" in whole
    assert seqs(again) == ids[9:]
    assert json.loads(answer) == turn


def test_readme_command_line_does_the_same(terminal: Terminal, turn: dict[str, Any]) -> None:
    """``list``, ``tail``, ``cancel`` and ``doctor`` succeed, in the same terminal as the commands before them."""
    name_it = block_with("Last-Event-ID: 9").splitlines()[0]
    told = terminal.run(f"{name_it}\n{block_with('harness doctor')}")
    assert f"{turn['id']}  completed already" in told
    assert "completed in" in told
    assert "✗" not in told


def test_readme_drain_takes_up_new_code(tmp_path: Path) -> None:
    """The restarted workers of both roles have imported the edited module: the agent's script and the tool are new."""
    with terminal_in(tmp_path) as terminal:
        edited = (tmp_path / "notes.py").read_text().replace("notes.jsonl", "new.jsonl").replace('"noted"', '"kept"')
        (tmp_path / "new.jsonl").write_text((tmp_path / "notes.jsonl").read_text().replace("Noted: ", "I see: "))
        (tmp_path / "notes.py").write_text(edited)
        terminal.run(block_with("harness drain"))
        made = json.loads(terminal.run(block_with("Prefer: wait=20")))["id"]
        terminal.run(f".venv/bin/harness turns tail {made}")
        turn = json.loads(terminal.run(f".venv/bin/harness turns show {made} --json"))
    assert turn["output_text"] == "I see: you like Assam."
    assert turn["calls"][-1]["content"] == "kept"


def test_openai_page_prints_what_it_says(beside: Terminal) -> None:
    """The example of the page about OpenAI's client works with the README's agent."""
    blocks = dict(BLOCK.findall(OPENAI_PAGE))
    assert beside.run(f"{sys.executable} - <<'END'\n{blocks['python']}END") == blocks["text"]


def test_client_page_prints_what_it_says(beside: Terminal) -> None:
    """All examples of the page about the client, in one process, with the README's agent."""
    code = "".join(body for kind, body in BLOCK.findall(CLIENT_PAGE) if kind == "python")
    printed = "".join(body for kind, body in BLOCK.findall(CLIENT_PAGE) if kind == "text")
    assert beside.run(f"{sys.executable} - <<'END'\n{code}END") == printed


def test_operating_page_exports_every_turn(beside: Terminal) -> None:
    """A line for each of the tenant's turns, with its calls and messages, and with those of a turn that was forked."""
    (export,) = [body for kind, body in BLOCK.findall(OPERATING_PAGE) if kind == "python"]
    (fork,) = [body for _, body in BLOCK.findall(OPERATING_PAGE) if "harness turns fork" in body]
    answered(beside)
    beside.run(f"turn=$(.venv/bin/harness turns list -q --limit 1)\n.venv/bin/harness turns tail $({fork.strip()})")
    beside.run(f"export HARNESS_GATEWAY_URL=http://127.0.0.1:8700\n{sys.executable} - <<'END'\n{export}END")
    turns = [json.loads(line) for line in (beside.directory / "export.jsonl").read_text().splitlines()]
    assert [turn["id"] for turn in turns] == beside.run(".venv/bin/harness turns list -q --limit 200").split()
    assert [len(turn["calls"]) for turn in turns[:2]] == [3, 3]
    assert turns[0]["messages"][-1]["content"] == [{"type": "text", "text": "Noted: you like Assam."}]


def test_celery_page_prints_what_it_says(beside: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The producer of the page about Celery messages works with the README's agent."""
    blocks = dict(BLOCK.findall(CELERY_PAGE))
    stack = running_stack(beside.directory / ".harness")
    assert stack is not None
    monkeypatch.setenv("HARNESS_REDIS_URL", stack.redis_url)
    assert beside.run(f"{sys.executable} - <<'END'\n{blocks['python']}END") == blocks["text"]
    monkeypatch.delenv("HARNESS_REDIS_URL")
    assert "Noted: you like Assam." in beside.run(".venv/bin/harness turns show note-assam-1")


def test_batches_page_prints_what_it_says(beside: Terminal) -> None:
    """The page's batch gives a line of results per turn, in order; cancelling it once it has ended stops nothing."""
    post, fetch, stop, command = [body for kind, body in BLOCK.findall(BATCHES_PAGE) if kind == "sh"][:4]
    answers, questions = [body for kind, body in BLOCK.findall(BATCHES_PAGE) if kind == "jsonl"][:2]
    post = post.replace(".venv/bin/python", sys.executable)
    printed = beside.run(f"{post}\n{fetch}\n{stop}").splitlines()
    told = re.findall(r'"custom_id": "(.+?)".*"output_text": "(.+?)"', answers)
    assert named(printed[:-1]) == told
    stopped = json.loads(printed[-1])
    assert (stopped["status"], stopped["metadata"]) == ("ended", {"day": "monday"})
    (beside.directory / "questions.jsonl").write_text(questions)
    (end,) = beside.run(command).splitlines()
    assert end.split("  ")[1:] == ["ended", "2 turns: 2 completed"]
    assert named((beside.directory / "answers.jsonl").read_text().splitlines()) == told


def named(lines: list[str]) -> list[tuple[str, str]]:
    """The name of each line of results, with the turn's answer."""
    return [(found["custom_id"], found["turn"]["output_text"]) for found in map(json.loads, lines)]


def test_webhooks_page_prints_what_it_says(tmp_path: Path) -> None:
    """The page's receiver, given the secret that the stack made, accepts the webhook of the page's turn."""
    blocks = dict(reversed(BLOCK.findall(WEBHOOKS_PAGE)))  # the first of each kind
    receive, post, look = [body for kind, body in BLOCK.findall(WEBHOOKS_PAGE) if kind == "sh"][:3]
    port = str(free_port())
    (tmp_path / "receiver.py").write_text(blocks["python"].replace("9000", port))
    with terminal_in(tmp_path) as terminal:
        start = receive.replace(".venv/bin/python", f"exec {sys.executable}")
        with terminal.start(start, stdout=subprocess.PIPE) as receiver:
            try:
                wait_until(lambda: _listens(int(port)), "the receiver to listen", 30)
                terminal.run(post.replace("9000", port))
                assert receiver.stdout is not None
                assert receiver.stdout.readline() == blocks["text"]
                told = wait_until(lambda: _delivered(terminal, look), "the note of it", 30)
            finally:
                receiver.terminate()
        secret = tmp_path / ".harness" / "webhook_secret"
        assert secret.stat().st_mode & 0o777 == 0o600
        assert secret.read_text().strip() not in (tmp_path / "up.log").read_text()
    assert (told["attempts"], told["status_code"]) == (1, 204)


def test_approvals_page_parks_a_call_and_runs_it_as_it_was_answered(tmp_path: Path) -> None:
    """The page's post is answered while its call waits, and the call runs with the arguments that the page gives it."""
    blocks = dict(reversed(BLOCK.findall(APPROVALS_PAGE)))  # the first of each kind
    (tmp_path / "refunds.py").write_text(blocks["python"])
    (tmp_path / "refunds.jsonl").write_text(blocks["jsonl"])
    up, post, find, answers = [body for kind, body in BLOCK.findall(APPROVALS_PAGE) if kind == "sh"]
    with_arguments = answers.splitlines()[1]
    with terminal_in(tmp_path, up) as terminal:
        parked = json.loads(terminal.run(post))
        assert parked["status"] == "requires_action"
        terminal.run(f"{find}\n{with_arguments}")
        follow, look = (f".venv/bin/harness turns {each} {parked['id']}" for each in ("tail", "show"))
        ended = terminal.run(f"{follow}\n{look}")
    assert '{"order_id":"1042","amount_cents":500}' in ended


def _listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _delivered(terminal: Terminal, commands: str) -> dict[str, Any] | None:
    webhook = json.loads(terminal.run(commands))
    return webhook if webhook["status"] == "delivered" else None
