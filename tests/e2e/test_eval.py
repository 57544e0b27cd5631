"""``harness eval`` on a running stack, as a user with cases runs it: no turn is made twice, whatever dies."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from sqlalchemy import create_engine, delete

from harness_worker.schema import idempotency_keys
from harness_worker.testing.waiting import wait_until
from tests.e2e.outsider import Json, Outsider, Step, add_lines, add_script, call
from tests.e2e.workers import await_back, kill
from tests.stacks import HARNESS, ROOT

pytestmark = pytest.mark.one_database("sqlite")

SUNNY: tuple[Step, ...] = ([call("look", n=1), call("find", n=2)], "It is sunny.")
SLOW: tuple[Step, ...] = ([call("hold", who="a", s=1.5)], "done")
VERDICT = {"kind": "judge", "step": 0, "content": [{"type": "text", "text": '{"score": 0.25, "reason": "meh"}'}]}
NAME = "a sweep"

Ran: TypeAlias = subprocess.CompletedProcess[str]


class Evaluator:
    """A user who has cases to evaluate.

    Args:
        outsider: The stack.
        directory: Where the cases and the results are.
    """

    def __init__(self, outsider: Outsider, directory: Path) -> None:
        self._outsider = outsider
        self.cases = directory / "cases.jsonl"
        self.out = directory / "results.jsonl"

    def write(self, script: Sequence[Step], *cases: Mapping[str, Any]) -> None:
        """Write a file of cases; in each of them the model says ``script``."""
        name = add_script(self._outsider.directory, script)
        lines = [{"input": "go", "metadata": {"script": name}, **case} for case in cases]
        self.cases.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def write_held(self, quick: int, held: int) -> str:
        """Write cases of which the later ones are not over until a word is given; returns that word."""
        word = uuid.uuid4().hex
        done = add_script(self._outsider.directory, SUNNY)
        waits = add_script(self._outsider.directory, ([call("await_word", word=word)], "done"))
        scripts = [done] * quick + [waits] * held
        self.write(SUNNY, *({"id": str(n), "metadata": {"script": script}} for n, script in enumerate(scripts)))
        return word

    def command(self, *options: str) -> list[str]:
        """The command line."""
        stack = ("--url", self._outsider.stack.gateway_url)
        return [*HARNESS, "eval", str(self.cases), *stack, *options]

    def run(self, *options: str, code: int = 0) -> Ran:
        """Run the command to its end."""
        command = self.command(*options)
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
        assert ran.returncode == code, ran.stdout + ran.stderr
        assert "Traceback" not in ran.stderr
        return ran

    def report(self, *options: str, code: int = 0) -> Json:
        """The report that the command prints as JSON."""
        return json.loads(self.run(*options, "--json", code=code).stdout)

    def start(self, *options: str) -> subprocess.Popen[str]:
        """Start the command, to be stopped later."""
        return subprocess.Popen(self.command(*options), cwd=ROOT, text=True, stderr=subprocess.PIPE)

    def turns(self, sweep: str) -> list[Json]:
        """All turns of a sweep."""
        answer = self._outsider.http.get("/v1/turns", params={"metadata.sweep": sweep, "limit": 200})
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def is_at(self, sweep: str, *, asked: int, done: int = 0) -> bool:
        """Whether so many cells of a sweep were asked, and so many are among the results."""
        told = self.out.read_text().splitlines() if self.out.exists() else []
        return (len(self.turns(sweep)), len(told)) == (asked, done)

    def results(self) -> list[Json]:
        """The lines of the file of results."""
        return [json.loads(line) for line in self.out.read_text().splitlines()]


@pytest.fixture
def evaluator(outsider: Outsider, tmp_path: Path) -> Evaluator:
    """An evaluator with a directory of its own."""
    return Evaluator(outsider, tmp_path)


def test_eval_reports_each_agent(evaluator: Evaluator) -> None:
    """Every agent runs every case twice; the exit code says whether enough passed, the results how each cell went."""
    expect = {"contains": "SUNNY", "calls": ["find", {"tool": "look", "arguments": {"n": 1}}], "no_calls": "put"}
    evaluator.write(SUNNY, {"id": "fair", "expect": expect}, {"id": "foul", "expect": {"equals": "It rains."}})
    asked = ("--agent", "worker", "--agent", "orderly", "--repeats", "2")
    found = evaluator.report(*asked, "--out", str(evaluator.out), code=1)
    assert (found["passed"], found["cases"], found["repeats"]) == (False, 2, 2)
    assert [agent["agent"] for agent in found["agents"]] == ["worker", "orderly"]
    for agent in found["agents"]:
        figures = ("cells", "passed", "pass_rate", "pass_at_k", "pass_hat_k", "not_completed")
        assert [agent[name] for name in figures] == [4, 2, 0.5, 0.5, 0.5, {}]
        assert (agent["usage"]["steps"], agent["usage"]["tool_calls"]) == (8, 8)
        assert 0 < agent["seconds"]["p50"] <= agent["seconds"]["p95"]
    assert {failure["case"] for failure in found["failures"]} == {"foul"}
    assert found["failures"][0]["why"] == ["the answer is not 'It rains.'"]
    results = {(line["agent"], line["case"], line["repeat"]): line for line in evaluator.results()}
    assert len(results) == len(evaluator.results()) == 8
    turns = {turn["id"]: turn for turn in evaluator.turns(found["sweep"])}
    assert turns.keys() == {line["turn_id"] for line in results.values()}
    for (agent, case_id, repeat), line in results.items():
        metadata = turns[line["turn_id"]]["metadata"]
        assert (metadata["case"], metadata["repeat"]) == (case_id, str(repeat))
        assert (turns[line["turn_id"]]["agent"], line["passed"]) == (agent, case_id == "fair")


def test_eval_is_told_for_people(evaluator: Evaluator) -> None:
    """Without ``--json`` the report is a table that explains each failure; a threshold that is met is success."""
    evaluator.write(SUNNY, {"id": "fair"}, {"id": "foul", "expect": {"no_calls": ["look"]}})
    ran = evaluator.run("--agent", "worker", "--threshold", "0.5")
    assert "worker: 1/2 cells passed" in ran.stdout
    assert "foul of worker, repeat 1 (turn 0" in ran.stdout
    assert "  look was called" in ran.stdout
    assert "2 of 2 cells done, 1 failed" in ran.stderr
    assert "\x1b" not in ran.stdout + ran.stderr


def test_eval_waits_for_judges(evaluator: Evaluator, outsider: Outsider) -> None:
    """The report has the judges' mean scores, and a case may demand a least score."""
    evaluator.write(SUNNY, {"id": "lenient"}, {"id": "strict", "expect": {"scores": {"calls": 1, "relevance": 0.5}}})
    script = add_script(outsider.directory, SUNNY)
    add_lines(outsider.directory, [{"script": f"{script}/relevance", **VERDICT}])
    found = evaluator.report("--agent", "judged", code=1)
    (agent,) = found["agents"]
    assert agent["scores"] == {
        "calls": {"mean": 1.0, "scored": 2, "missing": 0},
        "relevance": {"mean": 0.25, "scored": 2, "missing": 0},
    }
    assert [(each["case"], each["why"]) for each in found["failures"]] == [
        ("strict", ["relevance scored 0.25, below 0.5"])
    ]


def test_eval_asks_several_turns_of_one_session(evaluator: Evaluator) -> None:
    """A case's inputs are asked one after another; the calls and the usage of all its turns count."""
    evaluator.write(SUNNY, {"id": "talk", "input": ["first", "then", "last"], "expect": {"calls": ["look"]}})
    found = evaluator.report("--agent", "worker", "--out", str(evaluator.out))
    turns = evaluator.turns(found["sweep"])
    assert [turn["input"] for turn in reversed(turns)] == ["first", "then", "last"]
    assert len({turn["session_id"] for turn in turns}) == 1
    assert found["agents"][0]["usage"]["steps"] == 6
    assert evaluator.results()[0]["turn_id"] == turns[0]["id"]


def test_eval_checks_with_own_code(evaluator: Evaluator, tmp_path: Path) -> None:
    """A case may be checked by a function of the case and the turn; if it raises, its cell alone fails."""
    evaluator.write(SUNNY, {"id": "a", "target": 3}, {"id": "b", "target": "three"})
    (tmp_path / "mine.py").write_text(
        "def check(case, turn):\n"
        "    print('looking')\n"
        "    return len(turn.output_text.split()) == case.target + 0, turn.messages[0]['content']\n"
    )
    command = evaluator.command("--agent", "worker", "--check", "mine:check", "--json")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=110, check=False)
    assert ran.returncode == 1, ran.stderr
    found = json.loads(ran.stdout)
    assert found["agents"][0]["scores"] == {"mine:check": {"mean": 1.0, "scored": 1, "missing": 1}}
    assert [(each["case"], each["why"][0][:27]) for each in found["failures"]] == [("b", "mine:check raised TypeError")]


def test_killed_eval_goes_on_and_asks_nothing_twice(evaluator: Evaluator, outsider: Outsider) -> None:
    """If the command, the tool workers and the gateway are killed, the same command does the rest once."""
    word = evaluator.write_held(2, 8)
    options = ("--agent", "worker", "--name", NAME, "--out", str(evaluator.out), "--concurrency", "4")
    with evaluator.start(*options) as running:
        wait_until(lambda: evaluator.is_at(NAME, asked=6, done=2), "some cells to be asked", 60)
        running.kill()
    made = {turn["id"] for turn in evaluator.turns(NAME)}
    assert len(made) == 6
    lines = evaluator.out.read_text()
    with evaluator.out.open("a") as torn:
        torn.write(lines[:70])
    tools = kill(outsider, "tools")
    kill(outsider, "gateway")
    outsider.give(word)
    found = evaluator.report(*options)
    await_back(outsider, "tools", tools)
    turns = evaluator.turns(NAME)
    assert made < {turn["id"] for turn in turns}
    assert sorted(turn["metadata"]["case"] for turn in turns) == sorted(map(str, range(10)))
    assert found["agents"][0]["passed"] == 10
    assert evaluator.out.read_text().startswith(lines)
    assert sorted(line["case"] for line in evaluator.results()) == sorted(map(str, range(10)))
    again = evaluator.report(*options)
    assert (again, len(evaluator.turns(NAME)), len(evaluator.results())) == (found, 10, 10)


def test_interrupted_eval_leaves_its_turns_and_goes_on(evaluator: Evaluator, outsider: Outsider) -> None:
    """Ctrl-C exits at once with 130 and says how to continue; the next run uses the turns that were already made."""
    sweep = "interrupted"
    word = evaluator.write_held(0, 6)
    options = ("--agent", "worker", "--name", sweep, "--concurrency", "3")
    with evaluator.start(*options) as running:
        wait_until(lambda: evaluator.is_at(sweep, asked=3), "some cells to be asked", 60)
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Traceback" not in told
    assert "turns that were begun go on. The same command with --name interrupted goes on too." in told
    made = {turn["id"] for turn in evaluator.turns(sweep)}
    assert len(made) == 3
    outsider.give(word)
    found = evaluator.report(*options)
    turns = evaluator.turns(sweep)
    assert (found["agents"][0]["passed"], len(turns)) == (6, 6)
    assert made < {turn["id"] for turn in turns}


def test_failed_cells_are_asked_again_if_that_is_wanted(evaluator: Evaluator, outsider: Outsider) -> None:
    """Each retry has turns of its own, and a line in the same file; a cell whose turn completed is not retried."""
    sweep, down = "after an outage", {"script": "mended later"}
    cases = {"id": "foul", "expect": {"equals": "It rains."}}, {"id": "down", "input": ["one", "two"], "metadata": down}
    evaluator.write(SUNNY, {"id": "fair"}, *cases)
    options = ("--agent", "worker", "--name", sweep, "--out", str(evaluator.out))
    for retry, made in ((), 3), ((), 3), (("--retry-failed",), 4):
        found = evaluator.report(*options, *retry, code=1)
        assert found["agents"][0]["not_completed"] == {"failed (script_exhausted)": 1}
        assert len(evaluator.turns(sweep)) == made
    add_lines(outsider.directory, [{**down, "step": 0, "content": [{"type": "text", "text": "It is sunny."}]}])
    for retry in ("--retry-failed",), ("--retry-failed",), ():
        found = evaluator.report(*options, *retry, code=1)
        assert [failure["case"] for failure in found["failures"]] == ["foul"]
    downs = [line["status"] for line in evaluator.results() if line["case"] == "down"]
    assert (downs, len(evaluator.turns(sweep))) == (["failed", "failed", "completed"], 6)


def test_two_evals_of_one_name_share_their_turns(evaluator: Evaluator) -> None:
    """Two commands run the same sweep at the same time without knowing of each other, and report on the same turns."""
    sweep = "together"
    evaluator.write(SLOW, *({"id": str(number)} for number in range(4)))
    options = ("--agent", "worker", "--name", sweep)
    with evaluator.start(*options) as other:
        assert evaluator.report(*options)["agents"][0]["passed"] == 4
        other.communicate(timeout=60)
    assert other.returncode == 0
    assert len(evaluator.turns(sweep)) == 4


def test_eval_asks_nothing_twice_after_the_keys_are_forgotten(evaluator: Evaluator, outsider: Outsider) -> None:
    """Without idempotency keys and results a sweep finds its own turns, and checks them by what is expected now."""
    sweep = "of last week"
    evaluator.write(SUNNY, {"id": "a", "input": ["one", "two"]}, {"id": "b"})
    assert evaluator.report("--agent", "worker", "--name", sweep)["passed"]
    engine = create_engine(outsider.stack.database_url)
    with engine.begin() as connection:
        connection.execute(delete(idempotency_keys))
    engine.dispose()
    made = evaluator.turns(sweep)
    evaluator.write(SUNNY, {"id": "a", "input": ["one", "two"], "expect": {"equals": "It rains."}}, {"id": "b"})
    found = evaluator.report("--agent", "worker", "--name", sweep, code=1)
    assert [failure["case"] for failure in found["failures"]] == ["a"]
    assert evaluator.turns(sweep) == made
    assert len(made) == 3


def test_eval_takes_up_what_waited_for_a_person(evaluator: Evaluator, outsider: Outsider) -> None:
    """A turn that nobody approves in time fails, and the report says what to do; once approved, it counts."""
    sweep = "with a person"
    evaluator.write([[call("ask_put", n=1)], "done"], {"id": "a"})
    options = ("--agent", "worker", "--name", sweep, "--out", str(evaluator.out))
    with evaluator.start(*options) as asking:
        wait_until(
            lambda: [turn["status"] for turn in evaluator.turns(sweep)] == ["requires_action"], "the question", 60
        )
        asking.kill()
    late = evaluator.run(*options, "--timeout", "1", code=1)
    (turn,) = evaluator.turns(sweep)
    assert f"harness turns approve {turn['id']} --url {outsider.stack.gateway_url}, or deny" in late.stderr
    assert "the turn waits for a person to approve ask_put" in late.stdout
    outsider.http.post(f"/v1/turns/{turn['id']}/inputs", json={"call_id": "0.0", "decision": "approve"})
    assert evaluator.report(*options)["passed"]
    assert [line["status"] for line in evaluator.results()] == ["requires_action", "completed"]


def test_eval_of_an_unknown_agent_lists_those_there_are(evaluator: Evaluator) -> None:
    """The same happens if no agent was named and there are several; no turn is made."""
    evaluator.write(SUNNY, {"id": "a"})
    ran = evaluator.run("--agent", "worker", "--agent", "wroker", "--name", "unasked", code=2)
    assert "there is no agent wroker; there are: " in ran.stderr
    assert "say which agent with --agent; there are: " in evaluator.run(code=2).stderr
    assert evaluator.turns("unasked") == []


@pytest.mark.parametrize("form", ["", "--json"])
def test_eval_into_a_closed_pipe_is_silent(evaluator: Evaluator, form: str) -> None:
    """If nobody reads the report, no message is printed; the exit code says that it was not written."""
    evaluator.write(SUNNY, {"id": "a"})
    line = f"set -o pipefail; {shlex.join(evaluator.command('--agent', 'worker'))} {form} | :"
    ran = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert ran.returncode == 1
    assert "harness: " not in ran.stderr
