"""The page on workers for single tools, run as it is written (docs/how-to/place-tools.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from harness_worker.testing.waiting import wait_until
from tests.e2e.test_readme import BLOCK, Terminal, terminal_in
from tests.stacks import ROOT

PAGE: Final = (ROOT / "docs" / "how-to" / "place-tools.md").read_text()
UP, WORKERS = [body for kind, body in BLOCK.findall(PAGE) if kind == "sh"]
ENCODERS: Final = """
class Encoder:
    def __init__(self, device):
        self.device = device

    def nearest(self, about):
        return [f"{about} on GPU {self.device}"]
"""
ASK: Final = '.venv/bin/harness run "Any books on tea?" --json'


@contextmanager
def working(terminal: Terminal, command: str) -> Generator[None]:
    """A worker that takes calls until the context ends, with the module of the GPU's hosts if it has the GPU."""
    queue = re.findall(r"--queues (\w+)", command)[0]
    ready, log = terminal.directory / f"{queue}.ready", terminal.directory / f"{queue}.log"
    gpu = "PYTHONPATH=$PYTHONPATH:$PWD/gpu " if queue == "gpu" else ""
    with log.open("w") as sink:
        worker = terminal.start(f"exec env {gpu}{command} --ready-file {ready}", stdout=sink, stderr=sink)
    try:
        wait_until(lambda: worker.poll() is not None or ready.exists(), f"the worker of {queue} to be ready", 60)
        assert worker.poll() is None, log.read_text()
        yield
    finally:
        worker.terminate()
        assert worker.wait(40) == 0, log.read_text()


@pytest.mark.timeout(240)  # many processes start, one after another
def test_each_tool_runs_where_its_queue_is_served(tmp_path: Path) -> None:
    """Only the worker of ``gpu`` can load the encoder, and only that of ``payments`` has the secret."""
    files = {kind: body for kind, body in BLOCK.findall(PAGE) if kind in {"python", "jsonl"}}
    (tmp_path / "library.py").write_text(files["python"])
    (tmp_path / "library.jsonl").write_text(files["jsonl"])
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "encoders.py").write_text(ENCODERS)
    tools, gpu, payments = WORKERS.splitlines()
    with terminal_in(tmp_path, UP) as terminal, working(terminal, tools), working(terminal, gpu):
        found = terminal.run(".venv/bin/harness doctor --json || true")
        assert "nobody takes the calls of pay_fine (queue payments)" in found
        with working(terminal, payments):
            turn: dict[str, Any] = json.loads(terminal.run(ASK).splitlines()[-1])
    assert {call["tool"]: call["content"] for call in turn["calls"]} == {
        "find_books": '["tea on GPU 0"]',
        "opening_hours": "until six",
        "pay_fine": "50 cents paid",
    }
    assert len({call["worker"].partition("/")[0] for call in turn["calls"]}) == 3
