"""What the README and the other pages say can be done, can be done."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shlex
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, get_args, get_type_hints

import pytest
import typer.main
from pydantic.fields import FieldInfo
from pydantic_core import to_json

import harness_worker
from api_gateway.agents import Agent, AgentTool
from api_gateway.batches.answers import Batch
from api_gateway.config import Settings as GatewaySettings
from api_gateway.metrics.ended_turns import Totals
from api_gateway.metrics.exposition import exposed
from api_gateway.metrics.figures import COUNTED, Figures
from api_gateway.metrics.traffic import Traffic
from api_gateway.problems import CODES
from api_gateway.requests.queries import TurnsQuery
from api_gateway.requests.turns import TurnRequest
from api_gateway.sessions import Session
from api_gateway.turns.answers import Answer, Call, Turn
from api_gateway.webhooks.reading import Webhook
from api_gateway.webhooks.signing import Signer
from harness_worker import GatewayClient, Registry, RunContext
from harness_worker.adapters.scripted.lines import ScriptLine, parse_script
from harness_worker.config import Settings, variable_of
from harness_worker.core.registration.tool_options import ToolKeywords, ToolOptions
from harness_worker.credentials import tenant_webhook_secret
from harness_worker.entrypoints.cli import program
from harness_worker.entrypoints.doctor.database import LEAST_POSTGRES
from harness_worker.entrypoints.doctor.services import LEAST_REDIS
from harness_worker.entrypoints.doctor.variables import FOR_TESTS
from harness_worker.entrypoints.messages import FAILED, INTERRUPTED, UNREACHABLE, WRONG_USAGE
from harness_worker.evaluation.cases import Case
from harness_worker.wire import EventType, HintType, StopReason, TurnStatus
from tests.unit.named_tests import NAMED, wrongly_named

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text()
PAGES: Final = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "compose" / "README.md", *(ROOT / "docs").rglob("*.md")]
)
BLOCK: Final = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"\]\(([^)#]*)(?:#([^)]+))?\)")
HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
PROBLEM: Final = re.compile(r'Problem\(\s*"(\w+)"')
HARNESS: Final = re.compile(
    r"(?:\w+=\$\(|(?:\w+=\S+ )*)(?:docker compose exec \w+ )?(?:\.venv/bin/)?harness ([^)>\n]+)"
)
"""``harness`` at a line's start, or behind variables, in a container, or to fill a variable or a file."""

MAKE: Final = re.compile(r"make (.+)")


def _blocks(language: str, text: str = README) -> list[str]:
    return [body for kind, body in BLOCK.findall(text) if kind == language]


def _commands(program: re.Pattern[str]) -> list[str]:
    """What follows that program in the fenced blocks of every page."""
    blocks = [block for page in PAGES for shell in ("sh", "bash") for block in _blocks(shell, page.read_text())]
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return [found[1] for line in lines if (found := program.match(line))]


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the README's module defines, as run in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "notes"}
    (source,) = _blocks("python")
    exec(compile(source, "notes.py", "exec"), names)  # noqa: S102 - our own README
    return names


def test_readme_gives_the_two_commands() -> None:
    """A newcomer finds ``make demo`` and ``make test``, each a line of its own in a fenced block."""
    lines = [line for block in _blocks("sh") for line in block.splitlines()]
    assert [line for line in lines if MAKE.match(line)] == ["make demo", "make test"]


def test_readme_example_is_an_agent(example: dict[str, Any]) -> None:
    """The example declares an agent with a read and a write."""
    registry = example["registry"]
    assert isinstance(registry, Registry)
    assert [tool.name for tool in registry.agents["notes"].tools] == ["find_notes", "add_note"]


def test_readme_example_deduplicates_by_its_key(example: dict[str, Any], tmp_path: Path) -> None:
    """The example keeps the promise that ``retry_safe`` makes."""
    for key in ("k1", "k1", "k2"):
        assert example["add_note"]("tea", "Assam", RunContext.for_tests(idempotency_key=key)) == "noted"
    assert example["find_notes"]("tea") == ["Assam", "Assam"]
    with closing(sqlite3.connect(tmp_path / "notes.db")) as db:
        assert db.execute("SELECT count(*) FROM notes").fetchone() == (2,)


@pytest.mark.parametrize("command", _commands(HARNESS))
def test_pages_name_commands_that_exist(command: str) -> None:
    """Every ``harness`` command line in the pages parses: its command, options and arguments exist."""
    name, *rest = shlex.split(command.rstrip("\\"), comments=True)
    group: Any = typer.main.get_command(program.app)
    found: Any = group.get_command(None, name)
    while hasattr(found, "commands"):
        name, *rest = rest
        found = found.get_command(None, name)
    found.make_context(name, rest)


def test_pages_name_targets_that_exist() -> None:
    """Every ``make`` target in the pages is in the Makefile, as ``make help`` lists it."""
    targets = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {command.split()[0] for command in _commands(MAKE)}
    assert {"demo", "test"} <= named <= targets
    assert {"demo", "test", "coverage", "check", "bench", "up", "acceptance"} <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_link_to_what_exists(page: Path) -> None:
    """A relative link leads to a file or a directory, and to a heading if it names one."""
    links = [(link, part) for link, part in LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link, _ in links if not (page.parent / link).exists()] == []
    parts = [((page.parent / link if link else page).read_text(), part) for link, part in links if part]
    assert [part for text, part in parts if part not in map(_anchor, HEADING.findall(text))] == []


def _anchor(heading: str) -> str:
    """The name by which a link leads to a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _rows(heading: str) -> list[list[str]]:
    """The rows of the tables below a heading of the architecture's page, by cells."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    lines = page.partition(f"## {heading}")[2].partition("\n## ")[0].splitlines()
    rows = [line for line, below in pairwise(["", *lines, ""]) if line[:2] == "| " and below[:3] != "|--"]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


@pytest.mark.parametrize("heading", ["Invariants and the tests that hold them", "The turn, behaviour by behaviour"])
def test_architecture_names_tests_that_exist(heading: str) -> None:
    """Each row names at least one test, and each named test is there and run by what is said to run it."""
    rows = _rows(heading)
    assert len(rows) >= 10
    for *what, tests in rows:
        assert NAMED.search(tests), what
        assert wrongly_named(tests) == []


def test_architecture_shows_every_behaviour_of_the_turn() -> None:
    """None is left out."""
    assert [row[0] for row in _rows("The turn, behaviour by behaviour")] == [f"A{number}" for number in range(1, 23)]


def test_how_to_example_registers_its_tools() -> None:
    """The page on tools shows code that runs."""
    names: dict[str, Any] = {"__name__": "tools"}
    for source in _blocks("python", (ROOT / "docs" / "how-to" / "write-tools.md").read_text()):
        exec(compile(source, "tools.py", "exec"), names)  # noqa: S102 - our own page
    assert set(names["registry"].tools) == {"get_order", "refund", "my_bookings"}
    assert names["my_bookings"](RunContext.for_tests(metadata={"user": "ann"})) == ["a room for ann"]


def test_how_to_on_agents_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page on agents that ask agents, or hand over to them, shows code that runs, each with its script."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "how-to" / "delegate-to-agents.md").read_text()
    for agent, script in zip(("lead", "researcher", "triage", "seats"), _blocks("jsonl", text), strict=True):
        (tmp_path / f"{agent}.jsonl").write_text(script)
    names: dict[str, Any] = {"__name__": "delegate"}
    for source, says in zip(_blocks("python", text), _blocks("text", text), strict=True):
        exec(compile(source, "delegate.py", "exec"), names)  # noqa: S102 - our own page
        assert capsys.readouterr().out == says


def test_sessions_page_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page on sessions shows code that runs, with its script."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "reference" / "sessions.md").read_text()
    (script,), (says,) = _blocks("jsonl", text), _blocks("text", text)
    (tmp_path / "talk.jsonl").write_text(script)
    _run_page("sessions.md")
    assert capsys.readouterr().out == says


def test_webhooks_page_verifies_by_hand_what_the_gateway_signs() -> None:
    """The page's function takes what the gateway signs, also with two secrets, and nothing else."""
    source = _blocks("python", (ROOT / "docs" / "how-to" / "webhooks.md").read_text())[1]
    names: dict[str, Any] = {"__name__": "verify"}
    exec(compile(source, "verify.py", "exec"), names)  # noqa: S102 - our own page
    secret, body, now = tenant_webhook_secret("old", "acme"), b'{"type": "turn.completed"}', time.time()
    headers = Signer(["new", "old"]).headers("acme", "turn_7", now, body)
    assert names["is_genuine"](secret, headers, body)
    assert not names["is_genuine"](secret, headers, body + b" ")
    assert not names["is_genuine"](secret, {**headers, "webhook-id": "turn_8"}, body)
    assert not names["is_genuine"](tenant_webhook_secret("old", "other"), headers, body)
    assert not names["is_genuine"](secret, Signer(["old"]).headers("acme", "turn_7", now - 600, body), body)


def test_evaluation_page_shows_a_check() -> None:
    """The page's own check reads a case's target and a turn's text."""
    source = _blocks("python", (ROOT / "docs" / "how-to" / "evaluate.md").read_text())[1]
    names: dict[str, Any] = {"__name__": "checks"}
    exec(compile(source, "checks.py", "exec"), names)  # noqa: S102 - our own page
    case = Case.model_validate({"id": "late", "input": "Where is 1042?", "target": {"day": "Friday"}})
    said = [names["right"](case, SimpleNamespace(output_text=text)) for text in ("On Friday.", "Soon.")]
    assert said == [(True, "expected Friday"), (False, "expected Friday")]


def test_artifacts_page_shows_a_part() -> None:
    """The page on artifacts shows code that runs."""
    assert "part_of" in _run_page("artifacts.md")


def _run_page(name: str) -> dict[str, Any]:
    """The names that a reference page's code defines."""
    names: dict[str, Any] = {"__name__": "page"}
    for source in _blocks("python", (ROOT / "docs" / "reference" / name).read_text()):
        exec(compile(source, name, "exec"), names)  # noqa: S102 - our own page
    return names


def test_settings_page_has_every_setting_with_its_default() -> None:
    """The tables of settings are complete and true: the workers', and what the gateway has besides."""
    workers, gateways = (ROOT / "docs" / "reference" / "settings.md").read_text().split("## Of the gateway")
    fields = {variable_of(name): field.default for name, field in Settings.model_fields.items()}
    assert _settings(workers) == {name: _shown(default) for name, default in fields.items()}
    own = {variable_of(name): field.default for name, field in GatewaySettings.model_fields.items()}
    assert _settings(gateways) == {name: _shown(default) for name, default in own.items() if name not in fields}


def _settings(page: str) -> dict[str, str]:
    """Names and defaults of a table of settings."""
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", page, re.MULTILINE))


def _shown(default: object) -> str:
    if default is None:
        return ""
    return f"`{int(default) if isinstance(default, bool) else default}`"


def test_variables_of_the_tests_are_known() -> None:
    """Doctor takes none of them for a mistake, and whoever changes the code is told of each."""
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "harness_worker" / "testing").rglob("*.py")]
    named = {name for file in files for name in re.findall(r"HARNESS_TEST_[A-Z_]+", file.read_text())}
    assert named == FOR_TESTS
    assert [name for name in named if name not in (ROOT / "CONTRIBUTING.md").read_text()] == []


def _table(page: str, heading: str, kind: str = "reference") -> list[list[str]]:
    """The rows of the tables below a heading of a page, by cells."""
    text = (ROOT / "docs" / kind / page).read_text()
    _, found, below = text.partition(f"\n## {heading}\n")
    assert found, f"{page} has no heading {heading!r}"
    _, *rows = (line for line in below.partition("\n## ")[0].splitlines() if line[:2] == "| ")
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def _words(page: str, heading: str, kind: str = "reference") -> list[str]:
    """What the first column of such a table names."""
    return [row[0].strip("`") for row in _table(page, heading, kind)]


def test_events_page_has_every_event_and_hint() -> None:
    """Each type once, in the order of the code; the type checker holds the code to those types."""
    assert _words("events.md", "Events") == list(get_args(EventType))
    assert _words("events.md", "Hints") == list(get_args(HintType))


def test_events_page_has_every_error() -> None:
    """Each code with its status; the gateway answers with these and with no other."""
    assert {row[0].strip("`"): int(row[1]) for row in _table("events.md", "Errors")} == CODES
    sources = [path.read_text() for path in (ROOT / "api_gateway").rglob("*.py")]
    assert {code for text in sources for code in PROBLEM.findall(text)} == CODES.keys()


def test_turns_page_has_every_field_that_is_posted() -> None:
    """Each once; those that must be given are said to be."""
    required = {row[0].strip("`"): row[1] == "required" for row in _table("turns.md", "What is posted")}
    assert required == {name: field.is_required() for name, field in TurnRequest.model_fields.items()}


def test_turns_page_has_every_field_that_is_answered() -> None:
    """Of a turn and of a call; several may share a row."""
    assert _named("turns.md", "A Turn") == set(Turn.model_fields)
    assert _named("turns.md", "A call") == set(Call.model_fields)


def test_turns_page_has_every_status_stop_reason_and_filter() -> None:
    """In the order of the code, but for filters."""
    assert _words("turns.md", "Statuses") == list(TurnStatus)
    assert _words("turns.md", "Stop reasons") == list(StopReason)
    assert _named("turns.md", "List") == {*TurnsQuery.model_fields, "metadata.KEY"}


@pytest.mark.parametrize(
    ("answer", "page"),
    [
        (Agent, "reference/registry.md"),
        (AgentTool, "reference/registry.md"),
        (Batch, "reference/batches.md"),
        (Session, "reference/sessions.md"),
        (Webhook, "how-to/webhooks.md"),
    ],
)
def test_pages_name_every_field_of_what_is_answered(answer: type[Answer], page: str) -> None:
    """In code, whether as words or in an example."""
    shown = " ".join(re.findall(r"```.*?```|`[^`]+`", (ROOT / "docs" / page).read_text(), re.DOTALL))
    names = {field.alias or name for name, field in answer.model_fields.items()}
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", shown)] == []


def _named(page: str, heading: str) -> set[str]:
    """Whatever the first column of such a table names, several in a row too."""
    return {name for row in _table(page, heading) for name in re.findall(r"`([\w.]+)`", row[0])}


def test_what_typed_code_needs_is_imported_from_the_package() -> None:
    """All that it offers is there, the errors of declarations and the events of hooks included."""
    offered = {name: getattr(harness_worker, name) for name in harness_worker.__all__}
    events = re.findall(r"^\| `on_\w+` \| `(\w+)`", (ROOT / "docs/reference/hooks.md").read_text(), re.MULTILINE)
    assert {"ConfigError", *events} <= set(offered)
    for hook in ("on_turn_start", "on_pre_tool_use", "on_post_tool_use", "on_stream_chunk", "on_usage", "on_turn_end"):
        (event, *_) = get_type_hints(getattr(offered["Hooks"], hook)).values()
        assert offered[event.__name__] is event
    with pytest.raises(offered["ConfigError"]):
        offered["Registry"]().judge("nobody")


def test_operations_page_names_the_oldest_servers_that_doctor_accepts() -> None:
    """Whoever installs Postgres and Redis knows before ``harness doctor`` tells."""
    page = (ROOT / "docs" / "how-to" / "operate.md").read_text()
    assert f"Use Postgres {LEAST_POSTGRES} or newer, and Redis {LEAST_REDIS} or newer or any Valkey." in page


def test_operations_page_has_every_metric() -> None:
    """Those of the fleet and of the gateway, in the table and in what a scrape gets."""
    figures = Figures(ended=Totals(), open_work=None, queues=None, counters=dict.fromkeys(COUNTED, 0))
    body, _ = exposed(figures, Traffic(), {}, "")
    given = re.findall(r"^# TYPE (harness_\w+)", body.decode(), re.MULTILINE)
    page = (ROOT / "docs" / "how-to" / "operate.md").read_text()
    told = re.findall(r"`(harness_\w+)`", "".join(re.findall(r"^\| (`harness_.*?) \|", page, re.MULTILINE)))
    assert sorted(told) == sorted(given)


def test_operations_page_quotes_lines_that_are_logged() -> None:
    """Below "any other traceback" stand the harness's own lines, whose parts are in its code."""
    quoted = _words("operate.md", "Logs", "how-to")
    own = "`, `".join(quoted[quoted.index("any other traceback") + 1 :])
    sources = "".join(path.read_text() for path in (ROOT / "harness_worker").rglob("*.py"))
    parts = [part.strip(",: ") for line in own.split("`, `") for part in re.split(r"…|(?<=:) ", line)]
    assert len(parts) >= 8
    assert [part for part in parts if part not in sources] == []


def test_page_about_the_client_names_every_method() -> None:
    """What it can do is found there."""
    page = (ROOT / "docs" / "how-to" / "call-from-python.md").read_text()
    methods = {name for name, _ in inspect.getmembers(GatewayClient, inspect.isfunction) if not name.startswith("_")}
    assert [name for name in sorted(methods) if not re.search(rf"\b{name}\b", page)] == []


@pytest.mark.parametrize("method", ["tool", "add_tool", "mcp", "agent", "agent_tool", "judge"])
def test_registry_page_has_every_option_with_its_default(method: str) -> None:
    """As the code says; ``tool`` lists the options that ``add_tool`` has too."""
    told = {row[0].strip("`"): row[1].strip("`") for row in _table("registry.md", f"`registry.{method}`")}
    taken = list(inspect.signature(getattr(Registry, method)).parameters.values())[1:]
    defaults = {each.name: each.default for each in taken if each.kind is not inspect.Parameter.VAR_KEYWORD}
    if method == "tool":
        defaults |= {each.name: each.default for each in dataclasses.fields(ToolOptions)}
        assert ToolKeywords.__annotations__.keys() <= defaults.keys()
    assert told == {name: _written(default) for name, default in defaults.items()}


def test_scripts_page_has_every_field_with_its_default() -> None:
    """As the code reads them, and the page's own script can be played."""
    page = (ROOT / "docs" / "reference" / "scripts.md").read_text()
    (script,) = _blocks("jsonl", page)
    assert {name for _, name, _ in parse_script("page", script.encode()).lines} == {"default", "late", "down"}
    told = {row[0].strip("`"): row[1].strip("`") for row in _table("scripts.md", "Fields")}
    assert told == {name: _as_json(field) for name, field in ScriptLine.model_fields.items()}


def _as_json(field: FieldInfo) -> str:
    return "required" if field.is_required() else to_json(field.default, exclude_none=True).decode()


def _written(default: object) -> str:
    return "required" if default is inspect.Parameter.empty else repr(default).replace("'", '"')


def test_command_line_page_has_every_command_with_its_options() -> None:
    """Each in a table of its own, in the words of ``--help``."""
    text = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    known = dict(_tree("harness", typer.main.get_command(program.app)))
    assert re.findall(r"^## `(harness[a-z ]*)`$", text, re.MULTILINE) == list(known)
    for name, command in known.items():
        assert _table("command-line.md", f"`{name}`") == _option_rows(command), name
        told = text.split(f"## `{name}`\n\n")[1].partition("\n\n")[0]
        assert _plain(told).startswith(_plain(inspect.cleandoc(command.help).partition("\n\n")[0])), name


def test_help_names_values_as_the_page_does() -> None:
    """Arguments as ``TURN``, and no option's value by a type of Python."""
    for name, command in _tree("harness", typer.main.get_command(program.app)):
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        assert [each.metavar for each in arguments] == [_option_name(each) for each in arguments], name
        assert not re.search(r"--\S+ <(?:int|float|str|path)", command.get_help(typer.Context(command))), name


def test_help_shows_how_to_call_what_needs_an_argument() -> None:
    """A command that cannot be called by its name alone has an example, in its own help or in its group's."""
    whole: Any = typer.main.get_command(program.app)
    for name, command in _tree("harness", whole):
        group = whole.get_command(None, name.split()[1])
        shown = f"{command.help}\n{group.help}"
        if any(each.required for each in command.params):
            assert re.search(rf"^ +.*{name} ", shown, re.MULTILINE), name


def _plain(text: str) -> str:
    """In one line, without links in parentheses and without marks."""
    return " ".join(re.sub(r" \(\[\w+\]\(.+?\)\)|\]\(.+?\)|[`\[]", "", text).split())


def test_command_line_page_has_every_exit_code() -> None:
    """Besides 0."""
    codes = {FAILED, WRONG_USAGE, UNREACHABLE, INTERRUPTED}
    assert {int(code) for code in _words("command-line.md", "Exit codes")} == {0, *codes}


def _tree(name: str, command: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - a click command
    """Every command that does something, by its whole name."""
    if not hasattr(command, "list_commands"):
        yield name, command
        return
    for each in command.list_commands(None):
        yield from _tree(f"{name} {each}", command.get_command(None, each))


def _option_rows(command: Any) -> list[list[str]]:  # noqa: ANN401 - a click command
    """Its arguments and options as the page lists them: name, default, meaning."""
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    return [[f"`{_option_name(each)}`", _option_default(each), each.help] for each in shown]


def _option_name(option: Any) -> str:  # noqa: ANN401 - a click parameter
    return ", ".join(option.opts) if option.param_type_name == "option" else str(option.name).upper()


def _option_default(option: Any) -> str:  # noqa: ANN401 - a click parameter
    if option.required:
        return "required"
    return "" if option.default is None or option.default is False else f"`{option.default}`"


def test_no_page_keeps_both_sides_of_a_merge() -> None:
    """Git's marks of a conflict: a page with them reads as two."""
    marks = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)
    assert [page.name for page in [*PAGES, ROOT / "CHANGELOG.md"] if marks.search(page.read_text())] == []
