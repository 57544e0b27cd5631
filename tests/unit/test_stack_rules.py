"""The stack's small rules: passwords, restarts, messages, the ready line."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest

from harness_worker.adapters.blobs.store import FsspecBlobs
from harness_worker.bootstrap.engine import artifact_url_of
from harness_worker.config import Settings, load_settings
from harness_worker.databases import parse_url
from harness_worker.entrypoints.addresses import Addresses
from harness_worker.entrypoints.cli.target import Target, reach
from harness_worker.entrypoints.stack.drain import drain
from harness_worker.entrypoints.stack.failures import StartFailed, own_message, start_failure
from harness_worker.entrypoints.stack.home import Home
from harness_worker.entrypoints.stack.info import ProcessInfo, StackInfo, from_ready_line, publish
from harness_worker.entrypoints.stack.logs import LogWriter
from harness_worker.entrypoints.stack.plan import StackPlan, service_specs
from harness_worker.entrypoints.stack.restarts import Backoff
from harness_worker.entrypoints.stack.signals import StopSignal
from harness_worker.errors import ConfigError, HarnessError, TransientError
from harness_worker.workloads.places import places
from tests.stacks import run_here


def test_backoff_grows_to_its_cap_and_forgets_after_a_long_life() -> None:
    """Quick deaths are answered ever more slowly, a death after a healthy life at once again."""
    backoff = Backoff()
    crashes = [backoff.died(lived_s=1, was_ready=False) for _ in range(7)]
    assert crashes == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert backoff.died(lived_s=31, was_ready=True) == 0.2


def test_restart_of_what_was_killed_at_work_waits_at_most_a_second() -> None:
    """However often it is killed: what it was busy with waits for it."""
    backoff = Backoff()
    assert [backoff.died(lived_s=1, was_ready=True) for _ in range(5)] == [0.2, 0.4, 0.8, 1.0, 1.0]


def test_backoff_is_not_due_before_its_time() -> None:
    """A restart waits for its delay, and is done once."""
    backoff = Backoff()
    assert not backoff.pending
    backoff.died(lived_s=1, was_ready=True)
    assert backoff.pending
    assert not backoff.is_due()
    backoff.restarted()
    assert not backoff.pending


@pytest.mark.parametrize(("code", "kind"), [(1, StartFailed), (2, ConfigError), (3, TransientError), (-9, StartFailed)])
def test_start_failure_keeps_the_childs_class_and_message(code: int, kind: type[HarnessError]) -> None:
    """A child's exit code and message become those of the stack."""
    failure = start_failure("tools", code, "some log\nharness: no such app\n  try another")
    assert type(failure) is kind
    assert str(failure) == "no such app\n  try another"


def test_start_failure_without_words_names_the_child() -> None:
    """A silent child is at least named, with what ended it and where to look."""
    killed = start_failure("up", -9, "Killed", log=".harness/logs/up.log")
    assert str(killed) == "up was ended by SIGKILL at start; see .harness/logs/up.log"
    assert str(start_failure("tools", 1, "")) == "tools ended with exit code 1 at start; see its log above"
    assert own_message("Killed") == ""


def test_start_failure_of_an_interrupt_says_who_may_have_raised_it() -> None:
    """It says nothing itself; an app may raise what a Ctrl-C raises, and its author has to mend that."""
    failure = start_failure("coordinator", 130, "")
    assert type(failure) is ConfigError
    assert "coordinator was interrupted at start: by a signal, or the application raised" in str(failure)


def test_log_line_of_a_child_does_not_move_the_terminals_cursor() -> None:
    """What a tool prints, or a server's message, may hold escape sequences; only the prefix is coloured."""
    shown = io.StringIO()
    LogWriter(shown, coloured=True).line("tools", "said \x1b]0;OWNED\x07\x9b2J\u202e\tend")
    prefix, _, text = shown.getvalue().partition(" said ")
    assert (prefix, text) == ("\x1b[33mtools       |\x1b[0m", "·]0;OWNED··2J·\tend\n")


def publish_here(path: Path, *, app: str | None = None, database_url: str = "sqlite:////x") -> None:
    """A stack of this process, as others find it by its home."""
    home = Home(path)
    home.prepare()
    info = StackInfo(
        gateway_url="http://127.0.0.1:1",
        redis_url="redis://127.0.0.1:2/0",
        broker_url="amqp://127.0.0.1:5/",
        database_url=database_url,
        pid=os.getpid(),
        home=path,
        processes=(),
        app=app,
    )
    publish(home, info)


def settings_of(home: Path, given: dict[str, str]) -> Settings:
    """Settings of a command on this home, whatever the environment says."""
    return Settings(home=home).model_copy(update=given)


def test_ready_line_is_read_back() -> None:
    """What is written can be read."""
    info = StackInfo(
        gateway_url="http://127.0.0.1:1",
        redis_url="redis://127.0.0.1:2/0",
        broker_url="amqp://127.0.0.1:5/",
        database_url="sqlite:////x",
        pid=3,
        home=Path("/x"),
        processes=(ProcessInfo(role="tools", pid=4),),
        app="notes:registry",
    )
    assert from_ready_line(info.ready_line()) == info


@pytest.mark.parametrize(
    ("given", "broker_url"),
    [
        ({}, "amqp://127.0.0.1:5/"),
        ({"broker_url": "amqp://other/"}, "amqp://other/"),
        ({"redis_url": "redis://other/0"}, None),
        ({"redis_url": "redis://127.0.0.1:2/0"}, "amqp://127.0.0.1:5/"),
    ],
)
def test_home_tells_of_the_broker_beside_its_redis(
    tmp_path: Path, given: dict[str, str], broker_url: str | None
) -> None:
    """A worker that joins takes the stack's messages from where they are; another Redis is another fleet's."""
    publish_here(tmp_path)
    assert Addresses(settings_of(tmp_path, given)).broker_url == broker_url


@pytest.mark.parametrize(
    ("served", "option", "given"),
    [
        ("notes:registry", None, {"app": "clerk:registry"}),  # the environment's: what to start, if nothing runs
        ("notes:registry", " notes:registry ", {}),
        (None, "clerk:registry", {}),
        ("notes:registry", "clerk:registry", {"gateway_url": "http://127.0.0.1:2"}),  # another stack than the home's
    ],
)
def test_stack_is_asked_unless_it_serves_another_app_than_was_named(
    tmp_path: Path, served: str | None, option: str | None, given: dict[str, str]
) -> None:
    """Only ``--app`` names one, and only a stack that says what it serves is held against it."""
    publish_here(tmp_path, app=served)
    target = Target(command="harness run", settings=settings_of(tmp_path, given), app=option)
    with reach(target, lambda _words: None) as client:
        assert client.base_url == given.get("gateway_url", "http://127.0.0.1:1")


@pytest.mark.parametrize("option", ["clerk:registry", ""])
def test_stack_that_serves_another_app_is_not_asked(tmp_path: Path, option: str) -> None:
    """Its agents may write, and what they write is real."""
    publish_here(tmp_path, app="notes:registry")
    target = Target(command="harness run", settings=settings_of(tmp_path, {"app": option}), app=option)
    words = f"the stack in {tmp_path} serves notes:registry: leave --app out"
    with pytest.raises(ConfigError, match=words), reach(target, lambda _words: None):
        pass


def test_migrate_works_on_the_database_of_the_stack_in_the_home(tmp_path: Path) -> None:
    """As the other commands do: the home's own file would be made beside it, and help nobody."""
    publish_here(tmp_path, database_url=f"sqlite:///{tmp_path / 'elsewhere.db'}")
    assert run_here("migrate", "--home", str(tmp_path)).returncode == 0
    assert [each.name for each in tmp_path.glob("*.db")] == ["elsewhere.db"]


def test_url_that_is_set_needs_no_home() -> None:
    """A command with --url works where the home cannot be looked at, as in a directory that was removed."""
    settings = Settings(home=Path("~nobody-has-this-name"), gateway_url="http://127.0.0.1:1")
    assert Addresses(settings).gateway_url == "http://127.0.0.1:1"


@pytest.mark.parametrize("line", ["", "{}", "[]", "starting …"])
def test_other_lines_are_no_ready_line(line: str) -> None:
    """Anything else is refused."""
    with pytest.raises(ValueError, match=r".+"):
        from_ready_line(line)


@pytest.mark.parametrize("name", ["my home", "a%20b", "what?x=1", "#1", "ä", "a@b", "a:b", "a::b"])
def test_home_keeps_everything_within_itself(name: str, tmp_path: Path) -> None:
    """Whatever its path looks like in a URL: two homes would share a database, or artifacts have no directory."""
    home = Home(tmp_path / name)
    home.prepare()
    assert parse_url(home.database_url).database == str(home.path / "harness.db")
    assert parse_url(places(Settings(home=home.path), "any").database_url).database == str(home.path / "workload.db")
    for url in (home.artifact_url, artifact_url_of(Settings(home=home.path))):
        FsspecBlobs(url).put("turn/art_1", b"x")
        assert (home.artifacts / "turn" / "art_1").read_bytes() == b"x"
        (home.artifacts / "turn" / "art_1").unlink()


def test_a_home_below_the_users_is_the_same_for_artifacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No shell expands ``~`` in a file of variables; a worker on its own finds the artifacts of a stack there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    where = Path("~/stack")
    assert artifact_url_of(Settings(home=where)) == Home(where).artifact_url == f"file://{tmp_path}/stack/artifacts"


def test_artifacts_with_a_place_of_their_own_need_no_home() -> None:
    """A home that leads nowhere ends no worker that keeps nothing there."""
    url = "s3://bucket/artifacts"
    assert artifact_url_of(Settings(home=Path("~nobody-has-this-name/home"), artifact_url=url)) == url


@pytest.mark.parametrize("folder", ["plain", "50%25 off?"])
@pytest.mark.parametrize(("given", "file"), [("data.db", "data.db"), ("what%3F.db", "what?.db")])
def test_relative_database_becomes_absolute(
    given: str, file: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ready line's database URL is usable from any directory, whatever the working directory is called."""
    place = tmp_path / folder
    place.mkdir()
    monkeypatch.chdir(place)
    plan = StackPlan(settings=Settings(database_url=f"sqlite:///{given}"), port=0, coordinators=1, tools=0)
    assert parse_url(plan.database_url).database == str(place / file)


@pytest.mark.parametrize("given", ["", "secret-of-enough-characters"])
def test_webhook_secret_reaches_the_gateway_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    """A tool does what a model chooses, and may read its environment. One that is given wins over the home's."""
    monkeypatch.setenv("HARNESS_WEBHOOK_SECRET", given)
    home = Home(tmp_path)
    home.prepare()
    plan = StackPlan(settings=load_settings(home=tmp_path, app="a:b"), port=0, coordinators=1, tools=1)
    found = {spec.role: spec.environment.get("HARNESS_WEBHOOK_SECRET") for spec in service_specs(plan, "redis://h", 3)}
    assert found == {"gateway": given or home.kept_webhook_secret(), "coordinator": None, "tools": None}


@pytest.mark.parametrize("name", ["HARNESS_DEV_KEYLESS", "HARNESS_WEBHOOK_PRIVATE"])
def test_gateway_is_open_to_its_machine_unless_the_environment_says_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """`harness up` only fills in what is not said."""
    plan = StackPlan(settings=load_settings(home=tmp_path, app="a:b"), port=0, coordinators=0, tools=0)
    plan.home.prepare()
    for given, served in ((None, "1"), ("0", "0")):
        if given is not None:
            monkeypatch.setenv(name, given)
        (gateway,) = service_specs(plan, "redis://h", 3)
        assert gateway.environment[name] == served


def test_log_of_a_child_is_kept_within_bounds() -> None:
    """Only its newest lines, and of a line without an end a piece at a time, so that no child fills the memory."""
    kept: list[str] = []
    said = io.BytesIO(b"word\n" * 60 + b"x" * 100_000)
    LogWriter(io.StringIO(), coloured=False).pump("tools", said, kept).join(60.0)
    assert (len(kept), max(map(len, kept))) == (50, 65_536)


class Short(io.StringIO):
    """A stream for whose first line memory is short."""

    was_short = False

    def write(self, text: str) -> int:
        """Raise once."""
        if not self.was_short:
            self.was_short = True
            raise MemoryError
        return super().write(text)


def test_line_for_which_memory_is_short_is_the_only_one_lost() -> None:
    """Its child is heard as before; its pipe would else be closed, and nothing that it says be seen until it dies."""
    shown = Short()
    LogWriter(shown, coloured=False).pump("tools", io.BytesIO(b"lost\nsaid\n"), []).join(60.0)
    assert shown.getvalue() == "tools       | said\n"


def test_own_message_is_the_last_one() -> None:
    """An earlier one was only a warning of what came later."""
    assert own_message("harness: first\nother\nharness: second\nmore") == "second\nmore"


def test_children_end_before_the_stack_loses_its_patience(tmp_path: Path) -> None:
    """Their own time to stop is shorter than the stack's, which kills what is left."""
    settings = load_settings(home=tmp_path, app="a:b", grace_s=10.0)
    plan = StackPlan(settings=settings, port=0, coordinators=1, tools=1)
    plan.home.prepare()
    assert {spec.environment["HARNESS_GRACE_S"] for spec in service_specs(plan, "redis://h", 3)} == {"7.0"}


class Lingering:
    """A Redis that ends, without being killed, only after it has been looked at a few times."""

    role = "redis"

    def __init__(self) -> None:
        self.looks = iter([None] * 3)
        self.sent: list[signal.Signals] = []

    def exit_code(self) -> int | None:
        """Whether it has ended."""
        return next(self.looks, 0)

    def send(self, sig: signal.Signals) -> None:
        """Note a signal."""
        self.sent.append(sig)

    def kill(self) -> None:
        """Note that."""
        self.sent.append(signal.SIGKILL)


def test_redis_has_no_time_beyond_the_grace_of_the_stack() -> None:
    """What ends last is ended within the time that the whole drain may take."""
    stream, redis = io.StringIO(), Lingering()
    drain([cast("Any", redis)], StopSignal(), LogWriter(stream, coloured=False), grace_s=0.0)
    assert redis.sent == [signal.SIGTERM, signal.SIGKILL]
    assert "redis did not end in time: killed" in stream.getvalue()
