"""``harness turns`` on a real stack, as an operator sees it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from harness_worker.client.client import GatewayClient
from harness_worker.entrypoints.stack import open_stack
from harness_worker.testing.waiting import wait_until
from tests.apps.e2e.journal import DIRECTORY_VARIABLE, scripts_file
from tests.e2e.outsider import Outsider, call
from tests.stacks import HARNESS, ROOT, run_harness, run_here

APP: Final = "tests.apps.e2e.app:registry"
LONG_S: Final = 30
RED: Final = "\x1b[31mred\x1b[0m"
Run = Callable[..., subprocess.CompletedProcess[str]]
pytestmark = pytest.mark.xdist_group("cli-turns")


@pytest.fixture(scope="module")
def outsider(tmp_path_factory: pytest.TempPathFactory) -> Generator[Outsider]:
    """One stack for all of them."""
    directory = tmp_path_factory.mktemp("cli")
    scripts_file(directory).touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv(DIRECTORY_VARIABLE, str(directory))
        with open_stack(home=directory / "home", app=APP, env={DIRECTORY_VARIABLE: str(directory)}) as stack:
            client = Outsider(stack, directory)
            yield client
            client.http.close()


@pytest.fixture(scope="module")
def ended(outsider: Outsider) -> str:
    """A turn with two reads side by side, a write that fails, and an answer."""
    asked = [call("look", n=1), call("look", n=2), call("fail_write", how="tool_error")]
    words = f"Where is {RED} order 1042? " * 4
    return outsider.run(asked, "It is closed.", input=words, session_id="s-1")["id"]


def turns(outsider: Outsider, *arguments: str, code: int = 0, run: Run = run_here, **env: str) -> str:
    """The output of ``harness turns …`` on stdout."""
    ran = run("turns", *arguments, env={"HARNESS_HOME": str(outsider.stack.home), "COLUMNS": "80", **env})
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert "\x1b" not in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stdout


def test_list_is_a_table_of_80_columns(outsider: Outsider, ended: str) -> None:
    """A row has the turn, its status, agent, usage and input; no text in it can move the cursor."""
    shown = turns(outsider, "list", "--session", "s-1", HTTP_PROXY="http://127.0.0.1:9")
    head, row = shown.splitlines()
    assert head.split() == ["turn", "age", "status", "agent", "steps", "calls", "tokens", "asked"]
    assert row.split()[0] == ended[-12:]
    assert row.split()[2:7] == ["completed", "worker", "2", "3", "0"]
    assert "Where is ·[31m" in row
    assert max(map(len, shown.splitlines())) <= 80


def test_agents_are_listed(outsider: Outsider) -> None:
    """``agents`` prints a table, or the gateway's JSON."""
    env = {"HARNESS_HOME": str(outsider.stack.home), "COLUMNS": "80"}
    drawn = run_here("agents", env=env)
    assert (drawn.returncode, drawn.stderr) == (0, "")
    assert drawn.stdout.split()[:3] == ["agent", "model", "tools"]
    assert max(map(len, drawn.stdout.splitlines())) <= 80
    given = json.loads(run_here("agents", "--json", env=env).stdout)["data"]
    assert [agent["name"] for agent in given] == [line.split()[0] for line in drawn.stdout.splitlines()[1:]]
    assert "worker" in {agent["name"] for agent in given}


def test_usage_tells_what_turns_have_used(outsider: Outsider, ended: str) -> None:
    """``usage`` prints a table with the total last, or JSON; what the gateway refuses is wrong usage."""
    env = {"HARNESS_HOME": str(outsider.stack.home), "COLUMNS": "80"}
    drawn = run_here("usage", "--by", "session", "--session", "s-1", env=env)
    head, row, total = drawn.stdout.splitlines()
    assert head.split()[:4] == ["session", "turns", "steps", "calls"]
    assert (row.split()[:4], total.split()[:4]) == (["s-1", "1", "2", "3"], ["total", "1", "2", "3"])
    told = json.loads(run_here("usage", "--by", "model", "--session", "s-1", "--json", env=env).stdout)
    assert [(each["key"][:9], each["turns"]) for each in told["data"]] == [("scripted:", 1)]
    refused = run_here("usage", "--since", "2026-01-31T18:00", env=env)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--since: give a time with its zone" in refused.stderr
    used = outsider.http.get(f"/v1/turns/{ended}/usage").json()
    assert [(each["step"], each["kind"], each["model"]) for each in used["model_calls"]] == [
        (step, "step", told["data"][0]["key"]) for step in range(2)
    ]
    assert [(each["tool"], each["calls"], each["failures"]) for each in used["tools"]] == [
        ("fail_write", 1, 1),
        ("look", 2, 0),
    ]


def test_list_narrows_and_pages(outsider: Outsider, ended: str) -> None:
    """Filters are the gateway's, an option gives the next page, and ``-q`` prints ids for other commands."""
    other = outsider.run("done")["id"]
    home = {"HARNESS_HOME": str(outsider.stack.home)}
    first = run_here("turns", "list", "--status", "completed", "--limit", "1", "-q", env=home)
    (cursor,) = re.findall(r"there are more: --after (\S+)", first.stderr)
    assert first.stdout == f"{other}\n"
    assert ended in turns(outsider, "list", "--agent", "worker", "--after", cursor, "-q").split()
    script = outsider.turn(other)["metadata"]["script"]
    page = json.loads(turns(outsider, "list", "--metadata", f"script={script}", "--json"))
    assert page["data"][0]["id"] == other
    assert {turn["metadata"]["script"] for turn in page["data"]} == {script}
    assert turns(outsider, "list", "--status", "requires_action") == ""


def test_show_tells_each_step_with_its_waves(outsider: Outsider, ended: str) -> None:
    """``show`` accepts the end of an id and prints waves, arguments, times, why a call failed, and the answer."""
    shown = turns(outsider, "show", ended[-8:], "--messages")
    lines = shown.splitlines()
    assert lines[0] == f"{ended}  completed"
    assert max(map(len, lines)) <= 80
    assert [line.split()[:2] for line in lines if line.startswith("  wave")] == [["wave", "0"], ["wave", "1"]]
    calls = [line.split()[:4] for line in lines if re.match(r"    \S 0\.\d", line)]
    assert calls == [
        ["✓", "0.0", "look", '{"n":1,"s":0.0}'],
        ["✓", "0.1", "look", '{"n":2,"s":0.0}'],
        ["✗", "0.2", "fail_write", '{"how":"tool_error"}'],
    ]
    assert "ToolFailure: the shop is closed" in shown
    assert "·[31mred" in shown
    assert "  It is closed." in lines
    assert "  result of toolu_2 failed: the shop is closed" in lines


def test_show_json_is_the_gateways_turn(outsider: Outsider, ended: str) -> None:
    """``show --json`` prints the API's document."""
    assert json.loads(turns(outsider, "show", ended, "--json", "--messages")) == outsider.turn(ended)


@pytest.mark.parametrize("terminal", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_what_a_terminal_cannot_show_is_escaped(outsider: Outsider, terminal: dict[str, Any]) -> None:
    """Any language can be shown on any terminal; with ``--json`` the document is the same."""
    turn_id = outsider.run("Grüße 😀", input="Wo ist mein Päckchen? 😀")["id"]
    asked = partial(turns, outsider, run=run_harness, **terminal)
    shown = asked("show", turn_id)
    assert r"Wo ist mein P\xe4ckchen? \U0001f600" in shown
    assert r"Gr\xfc\xdfe \U0001f600" in shown
    assert r"mein P\xe4ck" in asked("list", "--limit", "1")
    assert json.loads(asked("show", turn_id, "--json", "--messages")) == outsider.turn(turn_id)


@pytest.mark.parametrize("columns", ["0", "5"])
def test_no_terminal_is_too_narrow(outsider: Outsider, ended: str, columns: str) -> None:
    """A width of 0 counts as unknown, and output has at least as many columns as it needs."""
    assert "result of toolu_2 failed" in turns(outsider, "show", ended, "--messages", COLUMNS=columns)
    assert ended[-12:] in turns(outsider, "list", "--session", "s-1", COLUMNS=columns)
    turns(outsider, "tail", ended, COLUMNS=columns)
    place = {"HARNESS_HOME": str(outsider.stack.home), "COLUMNS": columns}
    assert run_harness("run", "Hello", "--agent", "worker", env=place).returncode == 1  # it has no script
    assert run_here("doctor", env=place).returncode == 0


def test_tail_json_gives_events_while_the_turn_runs(outsider: Outsider) -> None:
    """Each durable event is a line as soon as it happens, without gaps; at the turn's end the command exits with 0."""
    turn_id = outsider.post([call("meet", who="a", parties=2), call("meet", who="b", parties=2)], "done")
    env = {**os.environ, "HARNESS_HOME": str(outsider.stack.home)}
    holding = outsider.post([call("hold", who="a", s=LONG_S)], "never said")
    outsider.await_entry(holding, "0.0")
    with subprocess.Popen(
        [*HARNESS, "turns", "tail", holding, "--json"], stdout=subprocess.PIPE, text=True, env=env, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert (first["seq"], first["type"]) == (1, "turn.queued")
        assert outsider.turn(holding)["status"] == "running"
        outsider.http.post(f"/v1/turns/{holding}/cancel")
        rest = [json.loads(line) for line in process.stdout]
    assert process.returncode == 1
    assert [event["seq"] for event in rest] == list(range(2, len(rest) + 2))
    assert rest[-1]["type"] == "turn.cancelled"
    outsider.end(turn_id)
    told = [json.loads(line) for line in turns(outsider, "tail", turn_id, "--json", "--after", "2").splitlines()]
    assert told == outsider.events(turn_id)[2:]


def test_tail_draws_the_turn(outsider: Outsider, ended: str) -> None:
    """``tail`` shows people the waves, and what the turn used."""
    shown = turns(outsider, "tail", ended)
    assert [line.split()[0] for line in shown.splitlines() if line.startswith("  wave")] == ["wave", "wave"]
    assert "completed in" in shown


def test_cancel_says_what_became_of_each(outsider: Outsider, ended: str) -> None:
    """Of several turns, running ones end and ended ones stay; the exit code is 0 once all are over."""
    running = [outsider.post([call("hold", who=str(n), s=LONG_S)], "never said") for n in range(2)]
    for turn_id in running:
        outsider.await_entry(turn_id, "0.0")
    told = turns(outsider, "cancel", running[0], running[1][-12:], ended).splitlines()
    assert told == [f"{running[0]}  cancelled", f"{running[1]}  cancelled", f"{ended}  completed already"]
    for turn_id in running:
        assert outsider.end(turn_id)["status"] == "cancelled"
    documents = json.loads(turns(outsider, "cancel", ended, "--json"))["data"]
    assert [document["status"] for document in documents] == ["completed"]


def test_cancel_by_metadata_stops_what_runs_and_what_waits(outsider: Outsider, ended: str) -> None:
    """All unfinished turns are cancelled, queued ones too; having nothing to cancel is no error."""
    body = outsider.body([call("hold", who="a sweep", s=LONG_S)], "never said", session_id="a-sweep")
    posted = [outsider.http.post("/v1/turns", json=body).json()["id"] for _ in range(3)]
    outsider.await_entry(posted[0], "0.0")
    named = f"script={body['metadata']['script']}"
    told = turns(outsider, "cancel", "--metadata", named).splitlines()
    assert sorted(told) == sorted(f"{turn_id}  cancelled" for turn_id in posted)
    assert told[-1].startswith(posted[0])  # it ran
    for turn_id in posted:
        assert outsider.end(turn_id)["status"] == "cancelled"
    assert outsider.turn(ended)["status"] == "completed"
    home = {"HARNESS_HOME": str(outsider.stack.home)}
    again = run_here("turns", "cancel", "--metadata", named, env=home)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "no turn with this metadata is open\n")


def test_batch_that_is_refused_is_told_by_the_lines_of_its_file(outsider: Outsider, tmp_path: Path) -> None:
    """Errors name lines of the file, while the gateway counts requests, without empty lines."""
    file, env = tmp_path / "turns.jsonl", {"HARNESS_HOME": str(outsider.stack.home)}
    good = {"custom_id": "a", "params": {"agent": "worker", "input": "x"}}

    def refusal(*lines: object) -> list[str]:
        file.write_text("\n\n".join(map(json.dumps, lines)))
        ran = run_here("batches", "create", str(file), env=env)
        assert (ran.returncode, ran.stdout) == (2, "")
        return ran.stderr.splitlines()

    unknown = refusal(good, {"custom_id": "b", "params": {"agent": "wroker", "input": "x"}})
    assert unknown[0].startswith(f"harness: {file}:3: params.agent: there is no agent 'wroker'; there are: ")
    wrong = refusal(good, {"custom_id": "b", "params": {"agent": "worker"}}, {"custom_id": "!", "params": {}})
    assert wrong[0].startswith(f"harness: {file}:3: params.input: ")
    assert [line.split(": ")[0].strip() for line in wrong[1:]] == [f"{file}:5"] * 3
    assert refusal(good, good) == [f"harness: {file}:3: custom_id: there is another 'a' before it"]


def test_batch_is_made_once_with_a_key_of_its_author(outsider: Outsider, tmp_path: Path) -> None:
    """An author whose command was killed can post the same batch again."""
    file, env = tmp_path / "turns.jsonl", {"HARNESS_HOME": str(outsider.stack.home)}
    file.write_text(json.dumps({"custom_id": "a", "params": outsider.body("done")}))
    create = ("batches", "create", str(file), "--json", "--key")
    first, again = (json.loads(run_here(*create, "july 1", env=env).stdout) for _ in range(2))
    assert first["id"] == again["id"]
    assert json.loads(run_here(*create, "july 2", env=env).stdout)["id"] != first["id"]
    for wrong in ("", " july", "jüly", "x" * 256):
        refused = run_here(*create, wrong, env=env)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "--key: give 1 to 255 characters" in refused.stderr


def test_fork_for_an_unknown_agent_is_wrong_usage(outsider: Outsider) -> None:
    """The exit code is 2, as for ``harness run``."""
    origin = outsider.run("done")["id"]
    command = ("turns", "fork", origin, "--from-step", "0", "--agent", "wroker")
    refused = run_here(*command, env={"HARNESS_HOME": str(outsider.stack.home)})
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("harness: there is no agent 'wroker'; there are: ")


def test_page_on_forks_runs_as_it_is_written(outsider: Outsider) -> None:
    """The command prints only the fork's id, so that other commands can use it."""
    origin = outsider.run([call("look", n=1)], "done", session_id="talk")["id"]
    page = (ROOT / "docs" / "how-to" / "fork-turns.md").read_text()
    commands = "".join(re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    commands = commands.replace("http://127.0.0.1:8700", outsider.stack.gateway_url)
    commands = commands.replace(".venv/bin/harness", " ".join(HARNESS)) + "\necho\necho $fork\n"
    env = {**os.environ, "HARNESS_HOME": str(outsider.stack.home), "NO_PROXY": "*"}
    ran = subprocess.run(["bash", "-euc", commands], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    *_, posted, fork = ran.stdout.splitlines()
    for turn in (json.loads(posted), outsider.turn(fork)):
        assert (turn["status"], turn["forked_from"]) == ("completed", {"turn_id": origin, "step": 1})


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["show", "no-such-turn!"], 1, "there is no turn"),
        (["cancel", "ab"], 2, "at least 4 characters"),
        (["cancel"], 2, "give the ids of turns, or --metadata KEY=VALUE"),
        (["cancel", "ffffffffffff", "--metadata", "a=b"], 2, "give the ids of turns, or --metadata KEY=VALUE"),
        (["tail", "ffffffffffff"], 2, "needs its whole id"),
        (["list", "--status", "done"], 2, "--status"),
        (["list", "--metadata", "x"], 2, "KEY=VALUE"),
        (
            ["fork", "ab", "--from-step", "0", "--budget", "max_steps=x"],
            2,
            "budget['max_steps'] must be a whole number",
        ),
        (["list", "--home", "/nonexistent"], 3, "--url or HARNESS_GATEWAY_URL"),
    ],
)
def test_turns_told_what_is_wrong(outsider: Outsider, arguments: list[str], code: int, words: str) -> None:
    """Unknown turns, ambiguous ids, wrong options and a missing stack each have their exit code and say what to do."""
    ran = run_here("turns", *arguments, env={"HARNESS_HOME": str(outsider.stack.home)})
    assert (ran.returncode, ran.stdout) == (code, "")
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr


def test_tail_survives_the_gateways_restart(outsider: Outsider) -> None:
    """After the stack has restarted a killed gateway, events continue where they stopped, each once."""
    turn_id = outsider.post([call("hold", who="a", s=4)], "done")
    outsider.await_entry(turn_id, "0.0")
    (gateway,) = [process.pid for process in outsider.stack.processes if process.role == "gateway"]
    env = {**os.environ, "HARNESS_HOME": str(outsider.stack.home)}
    with subprocess.Popen(
        [*HARNESS, "turns", "tail", turn_id, "--json"], stdout=subprocess.PIPE, text=True, env=env, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        os.kill(gateway, 9)
        lines += process.stdout.readlines()
    assert process.returncode == 0
    with GatewayClient(outsider.stack.gateway_url) as client:
        wait_until(client.ready, "the gateway to be back", 30)
        expected: list[dict[str, Any]] = list(client.events(turn_id, follow=False))
    assert [json.loads(line) for line in lines] == expected


@pytest.mark.parametrize(
    ("shell", "variables", "expected"),
    [
        ("complete_bash", {"COMP_WORDS": "harness tu", "COMP_CWORD": "1"}, "turns"),
        ("complete_bash", {"COMP_WORDS": "harness turns ca", "COMP_CWORD": "2"}, "cancel"),
        ("complete_zsh", {"_TYPER_COMPLETE_ARGS": "harness tu"}, "turns"),
    ],
)
def test_completion_of_bash_and_zsh(shell: str, variables: dict[str, str], expected: str) -> None:
    """The command answers what these shells ask when the user presses Tab."""
    ran = run_harness(env={"_HARNESS_COMPLETE": shell, **variables})
    assert expected in ran.stdout
    assert "worker" not in ran.stdout
