"""Agents that call other agents, in one process."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness_worker import AgentHarness, Effect, Hooks, Registry, Settings
from harness_worker.adapters.sql.store import SqlTurnStore
from harness_worker.core.registration.hooks import TurnEnd
from harness_worker.errors import TransientError
from harness_worker.testing.waiting import wait_until
from harness_worker.turn.results import TurnResult

Said = str | Sequence[tuple[str, dict[str, Any]]]


class Team:
    """A lead who may ask a helper and an expert, and a helper who may ask the expert; ``says`` writes their scripts."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.registry = Registry()
        self.met = threading.Barrier(2, timeout=60)
        self.asked: list[str] = []
        self.meets_person = False

        @self.registry.tool(effect=Effect.READ_ONLY)
        def meet() -> str:  # pyright: ignore[reportUnusedFunction] - its decorator keeps it
            """Wait for another one."""
            self.met.wait()
            return "met"

        @self.registry.tool(approval="always")
        def send() -> str:  # pyright: ignore[reportUnusedFunction] - its decorator keeps it
            """Send it."""
            return "sent"

        for name, asks in (("expert", ()), ("helper", ("expert",)), ("lead", ("helper", "expert"))):
            others = map(self.registry.agent_tool, asks)
            script = f"scripted:{home / name}.jsonl"
            self.registry.agent(name, model=script, tools=["meet", "send", *others], description="Helps.")
        self.harness = AgentHarness(self.registry, Settings(home=home))

    def says(self, agent: str, *steps: Said, latency_s: float = 0.0) -> None:
        """Write an agent's script."""
        lines = [{"step": n, "latency_s": latency_s, "content": _content(said)} for n, said in enumerate(steps)]
        (self.home / f"{agent}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def run(self, **options: Any) -> TurnResult:  # noqa: ANN401 - any option of a turn
        """Ask the lead."""
        return self.harness.run_turn(None, "go", agent="lead", approve=self.approve, **options)

    def approve(self, action: Any) -> bool:  # noqa: ANN401 - the question
        """Agree to everything; if told to, once a tool waits."""
        self.asked.append(action["tool"])
        if self.meets_person:
            self.met.wait()
        return True


def _content(said: Said) -> list[dict[str, Any]]:
    if isinstance(said, str):
        return [{"type": "text", "text": said}]
    return [{"type": "tool_use", "id": f"u{n}", "name": name, "input": given} for n, (name, given) in enumerate(said)]


HELP = ("helper", {"input": "help me"})


@pytest.fixture
def team(tmp_path: Path) -> Generator[Team]:
    """A team whose scripts are not written yet."""
    team = Team(tmp_path)
    yield team
    team.harness.close()


def test_agents_of_one_message_work_at_the_same_time(team: Team) -> None:
    """Each of the two waits in a tool until the other one runs."""
    team.says("lead", [HELP, HELP], "done")
    team.says("helper", [("meet", {})], "helped")
    turn = team.run()
    assert (turn.output_text, [call.content for call in turn.calls]) == ("done", ["helped", "helped"])
    assert [call.wave for call in turn.calls] == [0, 0]
    assert len({call.child_turn_id for call in turn.calls}) == 2


def test_agents_ask_others_and_people(team: Team) -> None:
    """A question two levels below the first turn is asked, and its answer reaches the agent that waits for it."""
    team.says("lead", [HELP], "done")
    team.says("helper", [("expert", {"input": "who knows?"})], "helped")
    team.says("expert", [("send", {})], "known")
    turn = team.run()
    assert (turn.output_text, turn.calls[0].content, team.asked) == ("done", "helped", ["send"])


def test_open_question_of_one_agent_stops_no_other(team: Team) -> None:
    """The helper's question is answered only once the expert, several steps later, runs a tool."""
    team.meets_person = True
    team.says("lead", [HELP, ("expert", {"input": "who knows?"})], "done")
    team.says("helper", [("send", {})], "helped")
    team.says("expert", [("unknown", {})], [("unheard_of", {})], [("meet", {})], "known")
    assert [call.content for call in team.run().calls] == ["helped", "known"]
    assert not team.met.broken


def test_person_is_asked_one_question_at_a_time(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second agent's question waits for the first one's answer."""
    asked, second = threading.Semaphore(1), threading.Event()
    overlapped: list[bool] = []

    def approve(_action: object) -> bool:
        if asked.acquire(blocking=False):
            overlapped.append(second.wait(1.0))
        else:
            second.set()
        return True

    monkeypatch.setattr(team, "approve", approve)
    team.says("lead", [HELP, HELP], "done")
    team.says("helper", [("send", {})], "helped")
    assert [call.content for call in team.run().calls] == ["helped", "helped"]
    assert overlapped == [False]


def test_program_that_ends_at_an_agents_question_ends(team: Team) -> None:
    """``sys.exit()`` ends the turn whichever agent asks, although an asked agent's question comes from a thread."""
    asked: list[str] = []

    def approve(action: Any) -> bool:  # noqa: ANN401 - the question
        asked.append(action["tool"])
        if len(asked) == 1:
            raise SystemExit("no more")
        return True

    def statuses() -> list[str]:
        with closing(sqlite3.connect(journal)) as connection:
            return [status for (status,) in connection.execute("SELECT status FROM turns")]

    journal = team.home / "journal.db"
    team.says("lead", [HELP], "done")
    team.says("helper", [("expert", {"input": "who knows?"})], "helped")
    team.says("expert", [("send", {})], "known")
    settings = Settings(home=team.home, database_url=f"sqlite:///{journal}")
    with closing(AgentHarness(team.registry, settings)) as harness:
        with pytest.raises(SystemExit, match="no more"):
            harness.run_turn(None, "go", agent="lead", approve=approve)
        wait_until(lambda: statuses() == ["cancelled"] * 3, "the agents' turns to end, too")
    assert asked == ["send"]


def test_program_that_ends_at_a_question_ends_though_its_turn_is_over_by_then(team: Team) -> None:
    """Somebody else may cancel the turn while a person is asked for one of its agents."""

    def query(statement: str) -> list[Any]:
        with closing(sqlite3.connect(journal)) as connection, connection:
            return connection.execute(statement).fetchall()

    def approve(_: object) -> bool:
        query("UPDATE turns SET cancel_requested = 1 WHERE agent = 'lead'")
        wait_until(lambda: query("SELECT 1 FROM turns WHERE agent = 'lead' AND status = 'cancelled'"), "the end of it")
        raise SystemExit("no more")

    journal = team.home / "journal.db"
    team.says("lead", [HELP], "done")
    team.says("helper", [("send", {})], "helped")
    settings = Settings(home=team.home, database_url=f"sqlite:///{journal}")
    with closing(AgentHarness(team.registry, settings)) as harness, pytest.raises(SystemExit, match="no more"):
        harness.run_turn(None, "go", agent="lead", approve=approve)


def test_turn_is_over_once_the_agents_that_it_asked_have_told_their_ends(team: Team) -> None:
    """Their caller may close the harness, or end the program, as soon as it has the answer."""
    told: list[str] = []
    chief_told = threading.Event()

    class Told(Hooks):
        """The ends of turns; the scout's is told only a moment after the chief's."""

        def on_turn_end(self, event: TurnEnd) -> None:
            """See ``Hooks.on_turn_end``."""
            if event.agent == "scout":
                chief_told.wait(10)
                time.sleep(0.5)
            told.append(event.agent)
            chief_told.set()

    model = f"scripted:{team.home / 'lead.jsonl'}"
    team.registry.agent("scout", model=f"scripted:{team.home / 'expert.jsonl'}", description="Looks.", hooks=[Told()])
    team.registry.agent("chief", model=model, tools=[team.registry.agent_tool("scout")], hooks=[Told()])
    team.says("lead", [("scout", {"input": "look"})], "done")
    team.says("expert", "looked")
    with closing(AgentHarness(team.registry, Settings(home=team.home))) as harness:
        harness.run_turn(None, "go", agent="chief")
        assert told == ["chief", "scout"]


@pytest.mark.parametrize(
    ("operation", "error"),
    [("load", TransientError("no answer")), ("transact", TransientError("no answer")), ("load", RuntimeError("a bug"))],
)
def test_agent_goes_on_after_something_went_wrong(
    team: Team, monkeypatch: pytest.MonkeyPatch, operation: str, error: Exception
) -> None:
    """A failure at the first look at a child turn does not make its parent wait for the deadline."""
    works, left = getattr(SqlTurnStore, operation), [error]

    def fails_once(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any operation
        if threading.current_thread().name == "inline-turn" and left:
            raise left.pop()
        return works(*args, **kwargs)

    monkeypatch.setattr(SqlTurnStore, operation, fails_once)
    team.says("lead", [HELP], "done")
    team.says("helper", [("unknown", {})], "helped")
    turn = team.run()
    assert (left, turn.output_text, turn.calls[0].content) == ([], "done", "helped")


def test_agent_is_driven_though_the_system_first_gives_it_no_thread(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent's driver tries again at its next look."""
    starts, left = threading.Thread.start, ["refused"]

    def refused_once(thread: threading.Thread) -> None:
        if thread.name == "inline-turn" and left:
            left.pop()
            raise RuntimeError("can't start new thread")
        starts(thread)

    monkeypatch.setattr(threading.Thread, "start", refused_once)
    team.says("lead", [HELP], "done")
    team.says("helper", "helped")
    turn = team.run()
    assert (left, turn.output_text, turn.calls[0].content) == ([], "done", "helped")


def test_wrong_words_for_an_agent_are_told_to_the_model(team: Team) -> None:
    """Wrong arguments for an agent are denied like those for any tool."""
    team.says("lead", [("helper", {"question": "?"}), ("helper", {"input": ""})], "done")
    turn = team.run()
    assert [call.child_turn_id for call in turn.calls] == [None, None]
    assert [call.content.partition(": ")[0] for call in turn.calls] == ["denied", "denied"]
    assert "input: required, but missing" in turn.calls[0].content


def test_agent_that_fails_is_a_call_that_failed(team: Team) -> None:
    """The model reads why the agent failed, and may ask it again."""
    team.says("lead", [HELP], "done")
    team.says("helper")
    turn = team.run()
    assert (turn.status, turn.calls[0].outcome) == ("completed", "ToolFailure")
    assert turn.calls[0].content.startswith("helper failed: script_exhausted: ")


def test_agent_has_less_time_than_who_asks(team: Team) -> None:
    """An agent that takes too long ends before its parent, whose model can still answer."""
    team.says("lead", [HELP], "done")
    team.says("helper", "too late", latency_s=30.0)
    turn = team.run(budget={"timeout_s": 12.0})
    assert (turn.status, turn.output_text) == ("completed", "done")
    assert turn.calls[0].content.startswith("[incomplete: deadline] I stopped before I could finish")


def test_interrupted_program_does_not_wait_for_the_agents_it_asked(team: Team) -> None:
    """Only the caller's own thread keeps the process alive, so Ctrl-C ends it whatever the asked agents are doing."""
    kept: list[str] = []

    @team.registry.tool(effect=Effect.READ_ONLY)
    def look() -> str:  # pyright: ignore[reportUnusedFunction] - its decorator keeps it
        """Look which threads a process would wait for at its end."""
        kept.extend(each.name for each in threading.enumerate() if each.name.startswith("inline-") and not each.daemon)
        return "looked"

    team.registry.agent("scout", model=f"scripted:{team.home / 'scout.jsonl'}", tools=[look], description="Looks.")
    team.registry.agent(
        "chief", model=f"scripted:{team.home / 'lead.jsonl'}", tools=[team.registry.agent_tool("scout")]
    )
    team.says("lead", [("scout", {"input": "look"})], "done")
    team.says("scout", [("look", {})], "looked")
    with closing(AgentHarness(team.registry, Settings(home=team.home))) as harness:
        turn = harness.run_turn(None, "go", agent="chief")
    assert (turn.calls[0].content, kept) == ("looked", [])
