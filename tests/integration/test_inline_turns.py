"""Many turns through one ``AgentHarness``: it keeps no state of them, and no turn sees another."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from sqlalchemy import Connection, Engine, event

from harness_worker import AgentHarness, Effect, Registry, RunContext, Settings, TurnResult
from harness_worker.adapters.clock import SystemClock
from harness_worker.bootstrap import inline
from harness_worker.errors import ConfigError, TransientError
from harness_worker.testing.waiting import wait_until

LONG_S = 55
"""As long as a turn's process may need on a slow machine until it is seen at work."""

TURNS = 200
THREADS = 8


def lines_of(number: int) -> list[dict[str, Any]]:
    """A script with words, addresses and tokens that only this turn has."""
    look = {"type": "tool_use", "id": "u", "name": "look", "input": {"word": f"word-{number:03}"}}
    said = {"type": "text", "text": f"It is on https://example.org/word-{number:03}."}
    usage = {"input_tokens": 1_000 + number, "output_tokens": number}
    steps = [{"content": [look], "usage": usage}, {"content": [said], "usage": usage}]
    return [{"script": f"s{number}", "step": step, **line} for step, line in enumerate(steps)]


@pytest.fixture
def harness(tmp_path: Path) -> Generator[AgentHarness]:
    """One agent that looks something up and cites it, and that remembers its users."""
    registry = Registry()

    @registry.tool(effect=Effect.READ_ONLY)
    def look(word: str, ctx: RunContext) -> dict[str, str]:
        """Look a word up."""
        return {"url": f"https://example.org/{word}", "turn": ctx.turn_id}

    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for number in range(TURNS) for line in lines_of(number)))
    registry.agent("clerk", model=f"scripted:{script}", tools=[look], memory=True)
    harness = AgentHarness(registry, Settings(home=tmp_path))
    yield harness
    harness.close()


def state_of(value: object, seen: set[int] | None = None) -> object:
    """Everything that an object of ours refers to, as plain values; of other objects only the type."""
    seen = set() if seen is None else seen
    if isinstance(value, str | int | float | bool | None):
        return value
    if id(value) in seen:
        return "again"
    seen.add(id(value))
    if isinstance(value, Mapping):
        return {str(key): state_of(each, seen) for key, each in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [state_of(each, seen) for each in cast("Iterable[Any]", value)]
    kind = type(value)
    if not kind.__module__.startswith("harness_worker"):
        return kind.__qualname__
    slots = [name for each in kind.__mro__ for name in getattr(each, "__slots__", ()) if hasattr(value, name)]
    held = {**{name: getattr(value, name) for name in slots}, **getattr(value, "__dict__", {})}
    return {name: state_of(each, seen) for name, each in held.items()}


def test_interleaved_turns_leave_nothing_and_never_meet(harness: AgentHarness) -> None:
    """No message, call, citation or token of a turn appears in another, and the harness object is unchanged."""
    harness.run_turn(None, "warm up", metadata={"script": "s0"})
    before = state_of(harness)
    with ThreadPoolExecutor(THREADS) as pool:
        asked = [
            pool.submit(harness.run_turn, f"session-{n}", f"question {n}", metadata={"script": f"s{n}"})
            for n in range(TURNS)
        ]
        turns = [each.result() for each in asked]
    assert state_of(harness) == before
    for number, turn in enumerate(turns):
        found = {"url": f"https://example.org/word-{number:03}", "turn": turn.id}
        assert (turn.status, turn.output_text) == ("completed", f"It is on {found['url']}.")
        assert [json.loads(call.content) for call in turn.calls] == [found]
        assert (turn.usage.input_tokens, turn.usage.output_tokens) == (2 * (1_000 + number), 2 * number)
        assert [each.id for each in turn.citations] == [found["url"]]
        told = json.dumps([[message["role"], message["content"]] for message in turn.messages])
        assert f"question {number}" in told
        assert told.count("word-") == told.count(f"word-{number:03}")


def test_parts_of_a_result_are_read_as_attributes_or_by_name(harness: AgentHarness) -> None:
    """The names are those of the JSON over HTTP, and a name that there is not is a ``KeyError``."""
    turn = harness.run_turn(None, "look", metadata={"script": "s3"}, budget={"max_steps": 5})
    assert (turn.usage["input_tokens"], dict(turn.usage)["steps"]) == (turn.usage.input_tokens, turn.usage.steps)
    assert turn.budget["max_steps"] == turn.budget.max_steps == 5
    (call,) = turn.calls
    assert (call["tool"], dict(call)["call_id"]) == (call.tool, call.call_id) == ("look", "0.0")
    with pytest.raises(KeyError, match="plus"):
        turn.usage["plus"]
    failed = harness.run_turn(None, "look", metadata={"script": "absent"})
    error = cast("Any", failed.error)
    assert error == {"code": "script_exhausted", "message": error.message}
    assert error.code == error["code"]


def test_tools_know_the_agent_and_the_metadata_of_their_turn(tmp_path: Path) -> None:
    """Reads, writes and the tools of an agent that is asked act for the user whom the post named."""
    registry, told = Registry(), list[tuple[str, str, str]]()

    @registry.tool(effect=Effect.READ_ONLY)
    def bookings(ctx: RunContext) -> str:
        """Look up what the user has booked."""
        told.append(("read", ctx.agent, ctx.metadata["user"]))
        return "a room"

    @registry.tool(effect=Effect.LOCAL_WRITE)
    def book(ctx: RunContext) -> str:
        """Book a room for the user."""
        told.append(("write", ctx.agent, ctx.metadata["user"]))
        return "booked"

    script = tmp_path / "script.jsonl"
    asks: list[dict[str, Any]] = [
        {"type": "tool_use", "id": name, "name": name, "input": {}} for name in ("bookings", "book")
    ]
    asks_hotels: dict[str, Any] = {"type": "tool_use", "id": "h", "name": "hotels", "input": {"input": "Book a room."}}
    said: dict[str, Any] = {"step": 1, "content": [{"type": "text", "text": "Done."}]}
    script.write_text("\n".join(map(json.dumps, [{"step": 0, "content": asks}, said])))
    lead = tmp_path / "lead.jsonl"
    lead.write_text("\n".join(map(json.dumps, [{"step": 0, "content": [*asks, asks_hotels]}, said])))
    registry.agent("hotels", model=f"scripted:{script}", tools=[bookings, book], description="Books rooms.")
    registry.agent("desk", model=f"scripted:{lead}", tools=[bookings, book, registry.agent_tool("hotels")])
    harness = AgentHarness(registry, Settings(home=tmp_path))
    assert harness.run_turn(None, "A room, please.", agent="desk", metadata={"user": "ann"}).status == "completed"
    assert told == [(effect, agent, "ann") for agent in ("desk", "hotels") for effect in ("read", "write")]
    harness.close()


def harness_of_a_hanging_tool(place: Path, effect: Effect, ended: threading.Event) -> AgentHarness:
    """One agent, which calls a tool that goes on until ``ended``, past its time, and then says that it went on."""
    registry = Registry()

    @registry.tool(effect=effect, timeout_s=0.5)
    def hang() -> str:
        """Outlive the turn."""
        return str(ended.wait(60))

    script = place / "script.jsonl"
    asks: dict[str, Any] = {"step": 0, "content": [{"type": "tool_use", "id": "1", "name": "hang", "input": {}}]}
    said: dict[str, Any] = {"step": 1, "content": [{"type": "text", "text": "Went on."}]}
    script.write_text("\n".join(map(json.dumps, [asks, said])))
    registry.agent("clerk", model=f"scripted:{script}", tools=[hang])
    return AgentHarness(registry, Settings(home=place))


@pytest.mark.parametrize(
    ("effect", "content"),
    [
        (Effect.LOCAL_WRITE, "outcome_unknown: hang started and did not end in time"),
        (Effect.READ_ONLY, "timeout: hang did not finish within 0.5 s"),
    ],
)
def test_call_that_outlives_its_time_is_left_alone_and_the_turn_goes_on(
    tmp_path: Path, effect: Effect, content: str
) -> None:
    """Its thread cannot be ended, so the turn continues without waiting for it."""
    ended = threading.Event()
    harness = harness_of_a_hanging_tool(tmp_path, effect, ended)
    try:
        turn = harness.run_turn(None, "Do it.", budget={"timeout_s": 50})
    finally:
        ended.set()
    assert (turn.status, turn.output_text) == ("completed", "Went on.")
    assert turn.calls[0].content.startswith(content)
    harness.close()


@pytest.mark.parametrize(("own", "synced"), [(True, {0}), (False, {2})])
def test_only_a_journal_that_is_kept_is_synced(tmp_path: Path, own: bool, synced: set[int]) -> None:
    """What is removed with the object need not survive a loss of power; another's database must."""
    script, registry, seen = tmp_path / "script.jsonl", Registry(), set[int]()
    script.write_text(json.dumps({"step": 0, "content": [{"type": "text", "text": "Done."}]}) + "\n")
    registry.agent("clerk", model=f"scripted:{script}", tools=[])
    harness = AgentHarness(registry, Settings(database_url=None if own else f"sqlite:///{tmp_path}/kept.db"))

    def ask(connection: Connection, *_statement: object) -> None:
        driver = cast("sqlite3.Connection", connection.connection.driver_connection)
        seen.add(driver.execute("PRAGMA synchronous").fetchone()[0])

    event.listen(Engine, "before_cursor_execute", ask)
    try:
        assert harness.run_turn(None, "Do it.").status == "completed"
    finally:
        event.remove(Engine, "before_cursor_execute", ask)
        harness.close()
    assert seen == synced


@pytest.mark.parametrize("effect", [Effect.LOCAL_WRITE, Effect.READ_ONLY])
def test_call_that_outlives_its_harness_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, effect: Effect
) -> None:
    """Its thread ends with at most one line in the log, and does not make the removed journal anew."""
    place, ended = tmp_path / "of_journals", threading.Event()
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    fallen: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", fallen.append)
    harness, others = harness_of_a_hanging_tool(tmp_path, effect, ended), threading.enumerate()
    try:
        harness.run_turn(None, "Do it.")
        caplog.clear()
        harness.close()
        (left,) = (thread for thread in threading.enumerate() if thread not in others)
    finally:
        ended.set()
    left.join(30)
    assert not left.is_alive()
    assert fallen == []
    assert len(caplog.records) <= 1, caplog.text
    assert list(place.iterdir()) == []


def judged_by(registry: Registry, judge: str, place: Path) -> AgentHarness:
    """A harness whose one agent says yes and has that judge."""
    script = place / "script.jsonl"
    script.write_text(json.dumps({"step": 0, "content": [{"type": "text", "text": "Yes."}]}))
    registry.agent("clerk", model=f"scripted:{script}", judges=[judge])
    return AgentHarness(registry, Settings(home=place))


def test_judge_that_fails_is_asked_again_after_its_pauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is retried as on workers; a judge that has given its score delays nobody."""
    waits: list[float] = []

    class HastyClock(SystemClock):
        """Waits for nothing."""

        def wait(self, seconds: float) -> None:
            """See ``ports.Clock.wait``."""
            waits.append(seconds)

    monkeypatch.setattr(inline, "SystemClock", HastyClock)
    registry, asked = Registry(), list[str]()

    def fails(turn: TurnResult) -> float:
        asked.append(turn.id)
        raise ValueError("no idea")

    registry.judge("fails", fails)
    harness = judged_by(registry, "fails", tmp_path)
    turn = harness.run_turn(None, "Are you open?")
    (score,) = harness.scores(turn.id)
    assert (asked, score.error) == ([turn.id] * 3, "ValueError: no idea")
    first, second, third = waits
    assert first == 0.0
    assert 0.0 < second <= 2.0 < third <= 4.0
    assert harness.scores(turn.id) == (score,)
    assert waits[3:] == [0.0] * 3
    harness.close()


REFUSES_ONCE = """
CREATE SEQUENCE refusals;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF nextval('refusals') = 1 THEN RAISE EXCEPTION 'out of memory' USING ERRCODE = '53200'; END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE INSERT ON turns FOR EACH ROW EXECUTE FUNCTION refuse();
"""


def test_turn_begins_though_its_database_refuses_it_at_first(postgres_url: str, tmp_path: Path) -> None:
    """A database that is short of something for a moment fails no turn that is about to begin, either."""
    registry = Registry()
    script = tmp_path / "script.jsonl"
    script.write_text('{"step": 0, "content": [{"type": "text", "text": "Yes."}]}')
    registry.agent("clerk", model=f"scripted:{script}")
    with closing(AgentHarness(registry, Settings(home=tmp_path, database_url=postgres_url))) as harness:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(REFUSES_ONCE)
        assert harness.run_turn(None, "Are you open?").output_text == "Yes."


def test_judge_whose_provider_asks_for_a_long_pause_keeps_nobody_waiting(tmp_path: Path) -> None:
    """The score stays due, and reading the scores after the pause asks the judge again."""
    registry, asked = Registry(), list[str]()

    def busy(turn: TurnResult) -> float:
        asked.append(turn.id)
        raise TransientError("busy", retry_after_s=3_600)

    registry.judge("busy", busy)
    harness = judged_by(registry, "busy", tmp_path)
    turn = harness.run_turn(None, "Are you open?")
    (score,) = harness.scores(turn.id)
    assert (asked, score.at, score.error) == ([turn.id], None, None)
    harness.close()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"user_message": "a\0b"}, "user_message must not contain the character U+0000"),
        ({"user_message": None}, "user_message must be a string, not NoneType"),
        ({"user_message": [{"type": "text", "text": "hi"}]}, "user_message must be a string, not list"),
        ({"session_id": ""}, "session_id must not be empty; None begins a new session"),
        ({"agent": ["a"]}, "agent=['a']: name one of the registry's agents: clerk"),
    ],
)
def test_option_that_makes_no_sense_is_refused(harness: AgentHarness, options: dict[str, Any], problem: str) -> None:
    """It is refused as over HTTP, before anything is stored, and the session is not blocked."""
    given: dict[str, Any] = {"session_id": "s", "user_message": "hello", **options}
    with pytest.raises(ConfigError) as raised:
        harness.run_turn(**given)
    assert str(raised.value) == problem
    assert harness.run_turn("s", "hello", metadata={"script": "s0"}).status == "completed"


def test_what_the_limits_allow_is_taken(harness: AgentHarness) -> None:
    """Values at the greatest size are accepted, and empty texts are texts."""
    metadata = {**{f"{n:02}" + "k" * 510: "v" * 512 for n in range(15)}, "script": "s0"}
    turn = harness.run_turn("s" * 255, "", metadata=metadata, skill_context="", parallel=False)
    assert (turn.status, turn.metadata) == ("completed", metadata)


def test_harness_that_was_closed_says_so(harness: AgentHarness) -> None:
    """Using a closed harness is an error, but closing it again is not."""
    turn = harness.run_turn(None, "hello", metadata={"script": "s0"})
    harness.close()
    harness.close()
    for use in (lambda: harness.run_turn(None, "hello"), lambda: harness.scores(turn.id)):
        with pytest.raises(ConfigError, match="this AgentHarness was closed; make a new one"):
            use()


@pytest.mark.parametrize(
    ("registry", "settings", "problem"),
    [
        (None, None, "registry must be a Registry, not None"),
        (Registry, None, f"registry must be a Registry, not {Registry}"),
        (Registry(), {"grace_s": 1}, "settings must be Settings, not {'grace_s': 1}"),
    ],
)
def test_harness_of_something_else_is_refused(registry: Any, settings: Any, problem: str) -> None:  # noqa: ANN401 - of any kind
    """Whoever forgot the parentheses of ``Registry()`` reads what is missing."""
    with pytest.raises(ConfigError) as raised:
        AgentHarness(registry, settings)
    assert str(raised.value) == problem


def test_harness_that_cannot_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the journal cannot be opened elsewhere, the temporary directory made for it is removed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match="cannot make /dev/null/here"):
        AgentHarness(Registry(), Settings(database_url="sqlite:////dev/null/here/harness.db"))
    assert list(tmp_path.iterdir()) == []


def test_harness_keeps_its_journal_in_a_directory_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where temporary files go is the system's choice, and part of the URL of a database there."""
    place = tmp_path / "50%25 off?"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    harness = AgentHarness(Registry(), Settings())
    assert [each.name for each in place.glob("*/harness.db")] == ["harness.db"]
    harness.close()


def test_child_that_a_tool_forks_ends_with_the_body(tmp_path: Path) -> None:
    """The same holds for a tool on a thread of the user's process: the child's outcome is not the tool's."""
    registry = Registry()

    @registry.tool(effect=Effect.LOCAL_WRITE)
    def split() -> int:
        """Fork."""
        child = os.fork()
        if child == 0:
            sys.exit(3)
        time.sleep(0.5)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    script = tmp_path / "script.jsonl"
    use: dict[str, Any] = {"type": "tool_use", "id": "u", "name": "split", "input": {}}
    contents = [[use], [{"type": "text", "text": "done"}]]
    lines = [{"script": "s", "step": step, "content": content} for step, content in enumerate(contents)]
    script.write_text("".join(json.dumps(line) + "\n" for line in lines))
    registry.agent("clerk", model=f"scripted:{script}", tools=[split])
    with closing(AgentHarness(registry, Settings(home=tmp_path))) as harness:
        turn = harness.run_turn(None, "hello", metadata={"script": "s"})
    assert (turn.output_text, [call.content for call in turn.calls]) == ("done", ["3"])


ALONE = """
import sys
from harness_worker import AgentHarness, Registry, Settings
registry = Registry()
registry.agent("clerk", model=f"scripted:{sys.argv[1]}", budget={"timeout_s": float(sys.argv[4])})
harness = AgentHarness(registry, Settings(database_url=sys.argv[2]))
print("asking", flush=True)
print(harness.run_turn("s", "hello", metadata={"script": sys.argv[3]}).stop_reason)
"""


def test_session_goes_on_after_its_process_was_killed(tmp_path: Path) -> None:
    """The turn that nobody drives any more ends at its deadline, and then the session's next turn runs."""
    script, database = tmp_path / "script.jsonl", f"sqlite:///{tmp_path / 'journal.db'}"
    content = [{"type": "text", "text": "hi"}]
    lines = [{"script": "slow", "latency_s": 60}, {"script": "quick"}]
    script.write_text("".join(json.dumps({"step": 0, "content": content, **line}) + "\n" for line in lines))
    command = [sys.executable, "-c", ALONE, str(script), database]
    with subprocess.Popen([*command, "slow", str(LONG_S)], stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "asking\n"
        wait_until(lambda: _status(tmp_path / "journal.db") == ["running"], "the turn to be under way")
        killed.kill()
    _let_pass(tmp_path / "journal.db", LONG_S + 1)
    done = subprocess.run([*command, "quick", "60"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["asking", "end_turn"]
    assert _status(tmp_path / "journal.db") == ["incomplete", "completed"]


def _let_pass(journal: Path, seconds: float) -> None:
    """Make the turn as much older as if so much time had passed since its process was killed."""
    times = ("created_at", "started_at", "deadline_at", "lease_until", "visit_deadline", "wake_at")
    earlier = ", ".join(f"{name} = {name} - {seconds}" for name in times)
    with closing(sqlite3.connect(journal)) as connection, connection:
        connection.execute(f"UPDATE turns SET {earlier}")  # noqa: S608 - our own names


def _status(journal: Path) -> list[str]:
    with closing(sqlite3.connect(journal)) as connection:
        return [status for (status,) in connection.execute("SELECT status FROM turns ORDER BY number")]
