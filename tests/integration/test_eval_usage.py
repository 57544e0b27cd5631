"""What ``harness eval`` refuses before it asks anything, and a stack that it starts for itself."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest

from harness_worker.entrypoints.cli.eval.results_file import ResultsFile
from harness_worker.evaluation.cases import read_cases
from harness_worker.evaluation.cells import cells_of
from harness_worker.evaluation.results import Found, result_of
from harness_worker.testing.waiting import wait_until
from tests.stacks import HARNESS, ROOT, run_here
from tests.unit.eval_kit import turn

PAGE: Final = (ROOT / "docs" / "how-to" / "evaluate.md").read_text()
BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARYING: Final = re.compile(r"(?<=turn )[0-9a-f-]{36}|\d+\.\d\d and \d+\.\d\d")
AWAY = "http://127.0.0.1:9"
CASE = '{"input": "hi"}\n'


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """A valid file of cases."""
    path = tmp_path / "cases.jsonl"
    path.write_text(CASE)
    return path


def test_sweep_that_is_done_needs_no_stack(cases: Path, tmp_path: Path) -> None:
    """The file has every result of the agents that are named, so the report is printed, and nothing is started."""
    out, home = tmp_path / "out.jsonl", tmp_path / "home"
    (asked,) = cells_of("s", ["clerk"], read_cases(str(cases), cases.read_bytes()), 1)
    with ResultsFile(out, "s") as file:
        file.add(result_of(asked, Found(turns=(turn(status="failed"),)), None))
    again = ("eval", str(cases), "--name", "s", "--out", str(out), "--home", str(home), "--agent", "clerk")
    ran = run_here(*again, env={"HARNESS_APP": "", "COLUMNS": "200"})
    assert ran.returncode == 1, ran.stderr
    assert "clerk: 0/1 cells passed" in ran.stdout
    assert "the same command with --name s --retry-failed asks" in ran.stdout
    assert f"runs again: harness up --app package.module:registry --home {shlex.quote(str(home))}" in ran.stdout
    assert "1 cell, 1 done before; --name s" in ran.stderr
    assert not home.exists()
    assert run_here(*again, "--agent", "other", env={"HARNESS_APP": ""}).returncode == 3


def refused(code: int, *arguments: str) -> str:
    """The message of a command that must be refused."""
    ran = run_here("eval", *arguments, env={"HARNESS_APP": ""})
    assert (ran.returncode, ran.stdout) == (code, ""), ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stderr


def test_bad_cases_are_told_before_anything_is_asked(tmp_path: Path) -> None:
    """Every invalid line is reported with its number and what is wrong, before a stack is looked for."""
    path = tmp_path / "cases.jsonl"
    path.write_text(CASE + '{"inputs": "x"}\n' + CASE + "nope\n")
    told = refused(2, str(path), "--url", AWAY)
    assert "line 2: inputs: unknown field" in told
    assert "line 2: input: required, but missing" in told
    assert "line 4: not JSON" in told
    assert "nothing was asked" in told


def test_missing_cases_are_wrong_usage(tmp_path: Path) -> None:
    """This holds for a file that does not exist and for a directory."""
    assert "nowhere.jsonl: No such file" in refused(2, str(tmp_path / "nowhere.jsonl"), "--url", AWAY)
    assert "Is a directory" in refused(2, str(tmp_path), "--url", AWAY)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--out", "/dev/full"], "--out /dev/full: give the name of a file"),
        (["--out", "CASES"], "line 1 is no result of a sweep: name another file"),
        (["--out", "CASES/below.jsonl"], "--out "),
        (["--check", "nope"], "--check nope: write it as module:function"),
        (["--check", "nowhere_at_all:check"], "No module named"),
        (["--retry-failed", "--name", "s"], "--retry-failed: name the sweep by --name, and by --out the file"),
        (["--name", ""], "--name: give 1 to 512 characters"),
        (["--name", " x"], "--name: give 1 to 512 characters"),
        (["--threshold", "1.5"], "--threshold"),
        (["--threshold", "nan"], "--threshold"),
        (["--timeout", "nan"], "--timeout"),
        (["--repeats", "0"], "--repeats"),
        (["--concurrency", "1000"], "--concurrency"),
        (["--url", "gateway"], "no address of a gateway"),
    ],
)
def test_wrong_options_are_told(options: list[str], told: str, cases: Path) -> None:
    """The exit code is 2 and the option is named; the file of ``--out`` stays as it is."""
    given = [option.replace("CASES", str(cases)) for option in options]
    assert told in refused(2, str(cases), "--url", AWAY, *given)
    assert cases.read_text() == CASE


def test_stack_that_does_not_answer_is_3(cases: Path, tmp_path: Path) -> None:
    """Whether the stack was named or looked for, the message says how to start one."""
    assert "harness up --app" in refused(3, str(cases), "--url", AWAY)
    home = str(tmp_path / "home")
    assert f"harness up --app package.module:registry --home {shlex.quote(home)}\n" in refused(
        3, str(cases), "--home", home
    )


def test_ctrl_c_waits_for_no_gateway_that_hangs(cases: Path) -> None:
    """The command exits at once with 130, during a request that hangs, and says how to continue."""
    asked, over = threading.Event(), threading.Event()

    class Hanging(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"data": [{"name": "clerk"}]}).encode())

        def do_POST(self) -> None:
            asked.set()
            over.wait()

    with ThreadingHTTPServer(("127.0.0.1", 0), Hanging) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [*HARNESS, "eval", str(cases), "--url", f"http://127.0.0.1:{server.server_port}"]
        with subprocess.Popen(command, cwd=ROOT, text=True, stderr=subprocess.PIPE) as running:
            wait_until(asked.is_set, "a case to be asked", 60)
            running.send_signal(signal.SIGINT)
            try:
                _, told = running.communicate(timeout=60)
            finally:
                running.kill()
        over.set()
        server.shutdown()
    assert running.returncode == 130, told
    assert "0 of 1 cell are done; turns that were begun go on." in told
    assert "Traceback" not in told


def test_page_prints_what_it_says(tmp_path: Path) -> None:
    """The page's example prints what the page shows, except for turns and times."""
    blocks = BLOCK.findall(PAGE)
    files = zip(
        ("clerk.py", "clerk.jsonl", "cases.jsonl", "checks.py"),
        (body for kind, body in blocks if "json" in kind or kind == "python"),
        strict=True,
    )
    for name, body in files:
        (tmp_path / name).write_text(body)
    command = next(body for kind, body in blocks if kind == "bash")
    line = command.replace(".venv/bin/harness", shlex.join(HARNESS), 1)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    ran = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=110, check=False
    )
    assert ran.returncode == 1, ran.stderr
    (told,) = [body for kind, body in blocks if kind == "text"]
    assert VARYING.sub("…", ran.stdout) == VARYING.sub("…", told)


@pytest.mark.acceptance
def test_eval_starts_a_stack_for_itself(tmp_path: Path) -> None:
    """``--app`` alone starts a stack; if it is killed with its stack, the next run continues from what was stored.

    A gateway that accepts one turn at a time makes the other cells wait.
    """
    cases = ('{"input": "hi", "expect": {"contains": "pong", "calls": "ping"}}\n') * 3
    (tmp_path / "cases.jsonl").write_text(cases)
    (tmp_path / "trivial.jsonl").write_text(
        '{"step": 0, "content": [{"type": "tool_use", "id": "a", "name": "ping", "input": {}}]}\n'
        '{"step": 1, "latency_s": 1.5, "content": [{"type": "text", "text": "Pong."}]}\n'
    )
    options = ("--app", "tests.apps.trivial:registry", "--home", "home", "--name", "mine", "--json")
    command = [*HARNESS, "eval", "cases.jsonl", *options, "--concurrency", "3"]
    settings = {"HARNESS_DATABASE_URL": f"sqlite:///{tmp_path / 'own.db'}", "HARNESS_TENANT_QUEUE": "1"}
    env = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.DEVNULL) as running:
        wait_until(lambda: _turns(tmp_path / "own.db") == 2, "the second case to be asked", 60)
        running.kill()
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=110, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["agents"][0]["passed"] == 3
    assert _turns(tmp_path / "own.db") == 3


def _turns(database: Path) -> int:
    """How many there are, as soon as there can be any."""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            (count,) = connection.execute("SELECT count(*) FROM turns").fetchone()
            return count
    except sqlite3.OperationalError:
        return 0
