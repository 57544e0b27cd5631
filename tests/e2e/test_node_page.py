"""The client of docs/how-to/call-from-node.md, run by Node beside a running stack."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Final

import pytest

from harness_worker.testing.waiting import wait_until
from tests.debian import debian_program
from tests.e2e.test_readme import BLOCK, Terminal, terminal_in
from tests.stacks import ROOT, role_pid

PAGE: Final = (ROOT / "docs" / "how-to" / "call-from-node.md").read_text()
BLOCKS: Final = dict(BLOCK.findall(PAGE))
SLOW: Final = {"script": "slow", "step": 0, "latency_s": 4, "content": [{"type": "text", "text": "Noted."}]}
FOLLOW: Final = """
import { events, send } from "./harness.mjs";
const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: process.argv[2] };
const turn = await (await send("/v1/turns", options)).json();
for await (const event of events(turn.id)) {
  if (event.type === "step.started") process.kill(Number(process.argv[3]), "SIGKILL");
  console.log(event.seq, event.type);
}
"""
pytestmark = [pytest.mark.acceptance, pytest.mark.xdist_group("node")]


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Generator[Terminal]:
    """A terminal beside a running stack, with the page's files."""
    directory = tmp_path_factory.mktemp("node")
    sources = [body for kind, body in BLOCK.findall(PAGE) if kind == "js"]
    for name, source in zip(re.findall(r"`(\w+\.mjs)`", PAGE), sources, strict=True):
        (directory / name).write_text(source)
    (directory / "follow.mjs").write_text(FOLLOW)
    with terminal_in(directory) as terminal:
        script = directory / "notes.jsonl"
        script.write_text(f"{script.read_text()}{json.dumps(SLOW)}\n")
        yield terminal


def printed(terminal: Terminal, command: str) -> str:
    """What a command with ``node`` prints, beside the stack's gateway."""
    node = debian_program("node", "nodejs")
    url = "export HARNESS_GATEWAY_URL=http://127.0.0.1:8700"
    return terminal.run(f"{url}\n{command.replace('node ', f'{node} ', 1)}")


def test_node_page_prints_what_it_says(terminal: Terminal) -> None:
    """Both files, saved under the names that the page gives them."""
    assert printed(terminal, BLOCKS["sh"]) == BLOCKS["text"]


def test_node_client_follows_through_the_death_of_a_gateway(terminal: Terminal) -> None:
    """Each event comes once and in order, from that gateway or from the next one."""
    home = terminal.directory / ".harness"
    pid = wait_until(lambda: role_pid(home, "gateway"), "the gateway to be there", 60)
    body = json.dumps({"agent": "notes", "input": "Note this.", "metadata": {"script": "slow"}})
    lines = printed(terminal, f"node follow.mjs '{body}' {pid}").splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(1, len(lines) + 1))
    assert lines[-1].split()[1] == "turn.completed"
    assert role_pid(home, "gateway") != pid
