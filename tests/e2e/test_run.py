"""``harness run`` and ``harness demo`` on a real stack, as their users see them."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from harness_worker.client.client import GatewayClient
from harness_worker.demo.database import shop_file
from harness_worker.entrypoints.stack import StackInfo, open_stack
from harness_worker.testing.waiting import wait_until
from tests.stacks import HARNESS, role_pid, run_harness

SHOP: Final = "harness_worker.demo.shop:registry"
ROOT: Final = Path(__file__).parents[2]
BLOCK: Final = re.compile(r"^```(python|jsonl)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAMPLE: Final = re.findall(r"^```\n(ask .*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[0]
pytestmark = pytest.mark.xdist_group("shop")  # one stack for all of them
QUESTION: Final = ("run", "Gift-wrap it, please.", "--agent", "support", "--metadata", "script=gift")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Generator[StackInfo]:
    """One stack that serves the shop."""
    with open_stack(home=tmp_path_factory.mktemp("shop"), app=SHOP, tools=2) as info:
        yield info


def test_run_draws_waves_on_stderr_and_answers_on_stdout(stack: StackInfo) -> None:
    """A pipe gets only the answer on stdout; stderr shows the waves, the failed call's reason and the totals."""
    ran = run_harness(*QUESTION, "--home", str(stack.home), "--app", SHOP)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("Order 1055 is gift-wrapped now.")
    assert len(ran.stdout.splitlines()) == 1
    waves = [line for line in ran.stderr.splitlines() if line.startswith("  wave")]
    assert [line.split()[2] for line in waves] == [
        "get_order",
        "add_gift_wrap",
        "apply_voucher",
        "list_vouchers",
        "apply_voucher",
    ]
    assert "get_policy" in waves[0]
    assert "Voucher SPRING24 expired" in ran.stderr
    assert "5 steps, 6 calls, 5 waves" in ran.stderr
    assert "\x1b" not in ran.stdout + ran.stderr


def test_run_json_prints_events_and_last_the_turn(stack: StackInfo) -> None:
    """``--json`` prints a document per line: all events in order, then the turn as GET shows it."""
    ran = run_harness(*QUESTION, "--url", stack.gateway_url, "--json", "--session", "s-1")
    assert ran.returncode == 0, ran.stderr
    *events, turn = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "turn.completed"
    assert turn["session_id"] == "s-1"
    with GatewayClient(stack.gateway_url) as client:
        assert client.turn(turn["id"]) == turn


def test_run_answers_before_it_stops_the_stack_it_started(tmp_path: Path) -> None:
    """The answer is printed before the command stops its stack."""
    command = [*HARNESS, *QUESTION, "--app", SHOP, "--home", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert any(b"stopping the stack" in line for line in process.stderr)
        readable, _, _ = select.select([process.stdout], [], [], 0)
        told = process.stdout.read()
        process.stderr.read()
    assert readable
    assert told.startswith(b"Order 1055 is gift-wrapped now.")


def test_run_of_an_unknown_agent_lists_those_there_are(stack: StackInfo) -> None:
    """The command exits with 2 and lists the agents that exist."""
    ran = run_harness("run", "hi", "--agent", "suport", "--url", stack.gateway_url)
    assert ran.returncode == 2
    assert "there is no agent suport; there are: support" in ran.stderr


@pytest.mark.parametrize("command", [("run", "hi"), ("eval", "-")])
def test_another_app_than_the_stacks_is_wrong_usage(stack: StackInfo, command: tuple[str, ...]) -> None:
    """If ``--app`` names another app than the running stack's, the command is refused and says what to do."""
    case = '{"input": "hi"}'
    options = ("--app", "clerk:registry", "--home", str(stack.home))
    refused = subprocess.run(
        [*HARNESS, *command, *options], cwd=ROOT, input=case, capture_output=True, text=True, timeout=60, check=False
    )
    assert refused.returncode == 2, refused.stderr
    assert f"the stack in {stack.home} serves {SHOP}: leave --app out" in refused.stderr


def test_run_of_a_turn_that_fails_exits_1(stack: StackInfo) -> None:
    """If the turn does not complete, its reason is printed and the exit code is 1."""
    ran = run_harness("run", "hi", "--metadata", "script=nosuch", "--url", stack.gateway_url)
    assert ran.returncode == 1
    assert "failed (script_exhausted)" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("options", [["--url", "http://127.0.0.1:9"], ["--home", "nowhere"]])
def test_run_without_a_stack_says_how_to_start_one(options: list[str], tmp_path: Path) -> None:
    """Without a stack the exit code is 3, and the message names the command that starts one."""
    named = [str(tmp_path / option) if option == "nowhere" else option for option in options]
    ran = run_harness("run", "hi", "--agent", "support", *named, env={"HARNESS_APP": ""})
    assert ran.returncode == 3
    assert "harness up --app" in ran.stderr


def test_run_interrupted_cancels_its_turn(stack: StackInfo) -> None:
    """Ctrl-C cancels the turn, so that none runs on that nobody waits for."""
    asked = ("run", "hi", "--metadata", "script=address", "--url", stack.gateway_url)
    with (
        standing_still(role_pid(stack.home, "tools")),
        subprocess.Popen([*HARNESS, *asked], stderr=subprocess.PIPE, text=True) as process,
    ):
        assert process.stderr is not None
        process.stderr.readline()  # the model has asked for tools
        process.send_signal(signal.SIGINT)
        told = process.stderr.read()
    assert process.returncode not in (0, None)
    (turn_id,) = re.findall(r"cancelled turn (\S+)", told)
    with GatewayClient(stack.gateway_url) as client:
        ended = wait_until(lambda: _if_final(client.turn(turn_id)), "the turn to end", 60)
    assert ended["status"] == "cancelled"


@contextmanager
def standing_still(pid: int) -> Generator[None]:
    """Meanwhile the process does nothing."""
    process = psutil.Process(pid)
    process.suspend()
    try:
        yield
    finally:
        process.resume()


def _if_final(turn: dict[str, Any]) -> dict[str, Any] | None:
    return turn if turn["finished_at"] else None


def untimed(shown: str) -> str:
    """What a terminal shows, without the times, and the line breaks that depend on them."""
    return " ".join(re.sub(r" [\d.]+ m?s\b", "", shown).split())


def test_demo_answers_three_customers(tmp_path: Path) -> None:
    """The demonstration completes three turns, fits into 80 columns in a pipe, and suggests next commands.

    The README shows one of the turns. The shop is in the home of its stack, also if the shell has not replaced a ``~``.
    """
    ran = run_harness("demo", env={"COLUMNS": "80", "HOME": str(tmp_path), "HARNESS_HOME": "~/harness"})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert not (ROOT / "~").exists()
    assert ran.stdout.count("  completed in ") == 3
    assert [row.split()[1:5] for row in ran.stdout.splitlines() if row.startswith(("address", "broken", "gift"))] == [
        ["completed", "3", "3", "5"],
        ["completed", "3", "4", "7"],
        ["completed", "5", "5", "6"],
    ]
    assert "\x1b" not in ran.stdout
    shown, _, hints = ran.stdout.partition("Where to look next")
    assert max(map(len, shown.splitlines())) <= 80
    assert "harness" in hints
    assert untimed(SAMPLE) in untimed(shown)


def test_demo_leaves_a_running_stack_alone(stack: StackInfo) -> None:
    """A stack that runs in the demonstration's home, and its data, stay as they are; the home is said to be in use."""
    with closing(sqlite3.connect(shop_file(stack.home))) as shop:
        before = shop.execute("PRAGMA data_version").fetchone()
        ran = run_harness("demo", "--home", str(stack.home))
        assert shop.execute("PRAGMA data_version").fetchone() == before
    assert ran.returncode == 1, ran.stdout
    assert f"home {stack.home} is in use" in ran.stderr
    assert "Stopped" not in ran.stdout


def test_stack_of_another_command_is_told_from_one_of_its_own(tmp_path: Path) -> None:
    """A stack that ``harness eval`` started is used, with a warning that it will end; nobody else gets its home."""
    with open_stack(home=tmp_path, app=SHOP, coordinators=1, tools=1, only_for="harness eval") as stack:
        log = tmp_path / "logs" / "up.log"
        told_before = log.read_text()
        ran = run_harness(*QUESTION, "--home", str(tmp_path))
        refused = run_harness("demo", "--home", str(tmp_path))
        assert log.read_text().startswith(told_before)
    assert ran.returncode == 0, ran.stderr
    told = " ".join(ran.stderr.split())
    assert f"the stack in {tmp_path} is one that `harness eval` started for itself: it ends with that command" in told
    assert refused.returncode == 1
    whose = f"is in use by a stack that `harness eval` started for itself (pid {stack.pid})"
    assert f"home {tmp_path} {whose}: wait until that command has ended, or choose another home" in refused.stderr


def test_readme_agent_answers(tmp_path: Path) -> None:
    """The README's agent, saved as the README says, answers its question on a stack started for it."""
    for kind, body in BLOCK.findall((ROOT / "README.md").read_text()):
        (tmp_path / ("notes.py" if kind == "python" else "notes.jsonl")).write_text(body)
    ran = subprocess.run(
        [*HARNESS, "run", "Note that I like Assam.", "--app", "notes:registry"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "Noted: you like Assam.\n"
    assert "✓ find_notes" in ran.stderr
    kept = "import sqlite3; print(sqlite3.connect('notes.db').execute('SELECT topic, text FROM notes').fetchall())"
    saw = subprocess.run([sys.executable, "-c", kept], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert saw.stdout == "[('tea', 'likes Assam')]\n"
