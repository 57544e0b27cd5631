"""The relay of docs/how-to/relay-to-a-browser.md, beside a running stack, as its page and as a browser use it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from harness_worker.adapters.embedded.ports import free_port
from harness_worker.testing.waiting import wait_until
from tests.browser import look
from tests.e2e.test_readme import BLOCK, Terminal, block_with, terminal_in
from tests.stacks import ROOT

PAGE: Final = dict(BLOCK.findall((ROOT / "docs" / "how-to" / "relay-to-a-browser.md").read_text()))
MESSAGE: Final = {
    "talk": "8c0b8f0e-6f0e-4a8f-9a53-0d1e7c1a5b10",
    "key": "8c0b8f0e-6f0e-4a8f-9a53-0d1e7c1a5b11",
    "words": "Note that I like Assam.",
}
LONG: Final = {"script": "long", "step": 0, "latency_s": 100, "content": [{"type": "text", "text": "never said"}]}
ASK_LONG: Final = json.dumps({"agent": "notes", "input": "Wait.", "metadata": {"user": "ann", "script": "long"}})
MANY: Final = 101
"""One more than the connections that httpx2 keeps to a host by itself."""

SUBMIT: Final = "<script>document.forms[0].requestSubmit()</script>"
pytestmark = pytest.mark.xdist_group("relay")


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Generator[Terminal]:
    """A terminal beside a running stack, with the relay's files."""
    with terminal_in(tmp_path_factory.mktemp("relay")) as terminal:
        (terminal.directory / "relay.py").write_text(PAGE["python"])
        (terminal.directory / "page.html").write_text(PAGE["html"])
        yield terminal


@pytest.fixture(scope="module")
def relay(terminal: Terminal) -> Generator[httpx2.Client]:
    """A client of the relay, which was started as the page says."""
    port = str(free_port())
    start = f"exec env HARNESS_GATEWAY_URL=http://127.0.0.1:8700 {PAGE['sh'].replace('9100', port)}"
    log = terminal.directory / "relay.log"
    with log.open("w") as sink:
        served = terminal.start(start.replace(".venv/bin/python", sys.executable), stdout=sink, stderr=sink)
    try:
        wait_until(lambda: served.poll() is not None or "running on" in log.read_text(), "the relay to listen", 30)
        assert served.poll() is None, log.read_text()
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
            yield client
    finally:
        served.terminate()
        served.wait(30)


def data(stream: str) -> list[dict[str, Any]]:
    """The events of a stream."""
    return [json.loads(found) for found in re.findall(r"^data: (.+)$", stream, re.MULTILINE)]


def test_relay_makes_one_turn_a_message_and_passes_on_its_end(relay: httpx2.Client) -> None:
    """A message that is sent again is the same turn; of its events the user sees the answer, and no call."""
    asked = [relay.post("/ask", json=MESSAGE).json()["id"] for _ in range(2)]
    assert asked[0] == asked[1]
    told = relay.get(f"/turns/{asked[0]}/events")
    (end,) = data(told.text)
    assert (end["type"], end["data"]["output_text"]) == ("turn.completed", "Noted: you like Assam.")
    again = relay.get(f"/turns/{asked[0]}/events", headers={"Last-Event-ID": str(end["seq"])})
    assert (again.status_code, again.text) == (204, "")


def test_relay_shows_nobody_the_turn_of_another(relay: httpx2.Client, terminal: Terminal) -> None:
    """A turn of another user, or of none, is as one that does not exist."""
    other = json.loads(terminal.run(block_with("Prefer: wait=20")))["id"]
    assert [relay.get(f"/turns/{turn}/events").status_code for turn in (other, "nope")] == [404, 404]


def test_relay_serves_many_readers_at_once(relay: httpx2.Client, terminal: Terminal) -> None:
    """However many follow their turns, another one need not wait for the end of theirs."""
    script = terminal.directory / "notes.jsonl"
    script.write_text(f"{script.read_text()}{json.dumps(LONG)}\n")
    post = f"curl -s http://127.0.0.1:8700/v1/turns -H 'Content-Type: application/json' -d '{ASK_LONG}'"
    turn_id = json.loads(terminal.run(post))["id"]
    with (
        ExitStack() as streams,
        httpx2.Client(
            base_url=relay.base_url, limits=httpx2.Limits(max_connections=None), timeout=60, trust_env=False
        ) as many,
    ):
        for _ in range(MANY):
            stream = streams.enter_context(many.stream("GET", f"/turns/{turn_id}/events"))
            assert stream.status_code == 200
    terminal.run(f".venv/bin/harness turns cancel {turn_id}")


@pytest.mark.acceptance
def test_browser_shows_the_answer(relay: httpx2.Client, terminal: Terminal, tmp_path: Path) -> None:
    """Once the page's form was sent, as its button does."""
    (terminal.directory / "page.html").write_text(PAGE["html"] + SUBMIT)
    shown = look(str(relay.base_url), tmp_path, picture=tmp_path / "page.png", width=600, height=200, settle_ms=10_000)
    assert '<p id="answer">Noted: you like Assam.</p>' in shown
