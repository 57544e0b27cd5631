"""Tools of real MCP servers: listed once, called over a kept connection, and how broken calls end."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp import Client
from mcp_types import CallToolResult, TextContent

from harness_worker import (
    AgentHarness,
    Effect,
    Registry,
    Settings,
    ToolError,
    ToolOutcomeUnknown,
    ToolTransientError,
    TurnResult,
)
from harness_worker.adapters.embedded.ports import LOOPBACK, listening_socket
from harness_worker.adapters.mcp.calls import McpTool
from harness_worker.adapters.mcp.contents import text_of
from harness_worker.adapters.mcp.endpoints import Mode
from harness_worker.adapters.mcp.exchanges import Exchange
from harness_worker.adapters.mcp.keeping import KeptConnection
from harness_worker.adapters.mcp.servers import endpoint_of
from harness_worker.core.registration.tool_options import ToolKeywords
from harness_worker.errors import ConfigError
from harness_worker.ports import ignore
from harness_worker.testing.waiting import wait_until
from tests.apps.mcp.odd import MANY
from tests.environments import PASSWORD, UNUSABLE
from tests.mcp_servers import ROOT, STDIO, HttpServer, Notes, Proxy, context, http_server, odd, proxy
from tests.processes import runs
from tests.unit.strikes import MOST_LINES, Striker

SECRET = "open-sesame"  # noqa: S105 - everybody knows it
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.xdist_group("mcp")


@pytest.fixture(scope="module", autouse=True)
def at_root() -> Generator[None]:
    """Run in the directory from which ``python -m tests.…`` works."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        yield


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Notes:
    """The lines that the servers' tools have written."""
    return Notes(tmp_path_factory.mktemp("mcp") / "notes")


@pytest.fixture(autouse=True)
def fresh_notes(notes: Notes) -> None:
    """Begin each test without lines of others."""
    notes.clear()


@pytest.fixture(scope="module")
def registry(notes: Notes) -> Generator[Registry]:
    """The tools of a server over standard input and output."""
    registry = Registry()
    safe: dict[str, ToolKeywords] = {"linger": {"effect": Effect.READ_ONLY, "timeout_s": 20.0}}
    registry.mcp(
        "files", command=STDIO, env={"NOTES": str(notes.file), "TOKEN": SECRET}, tools=safe, timeout_s=30.0, queue="mcp"
    )
    yield registry
    registry.close()


@pytest.fixture(scope="module")
def behind(notes: Notes) -> Generator[HttpServer]:
    """A server over HTTP."""
    with http_server(notes) as server:
        yield server


@pytest.fixture(scope="module")
def before(behind: HttpServer) -> Generator[Proxy]:
    """A proxy before that server."""
    with proxy(behind.url) as server:
        yield server


@pytest.fixture(scope="module")
def kept(before: Proxy) -> Generator[KeptConnection]:
    """A connection through the proxy, with the newest protocol."""
    kept = _kept(before.url)
    yield kept
    kept.close()


def _kept(url: str, mode: Mode = "auto") -> KeptConnection:
    endpoint = endpoint_of("tickets", command=None, env=None, cwd=None, url=url, headers={"x-token": SECRET})
    return KeptConnection(endpoint, mode=mode, connect_timeout_s=30.0)


def called(registry: Registry, tool: str, seconds: float = 30.0, **arguments: object) -> str:
    """The value that a tool returns."""
    return str(registry.tools[f"files__{tool}"].invoke(dict(arguments), context(seconds=seconds)))


def pid_of(registry: Registry) -> int:
    """The pid of the server that answers now."""
    return json.loads(called(registry, "process"))["pid"]


def soon(work: Callable[[], object]) -> Callable[[], None]:
    """Start something on another thread; returns a function that waits for its end."""
    thread = threading.Thread(target=work)
    thread.start()
    return thread.join


def test_servers_tools_are_tools(registry: Registry) -> None:
    """Each has the server's name and its own, and its schema; hints about effects are ignored by default."""
    add, wipe = registry.tools["files__add"], registry.tools["files__wipe"]
    assert (add.description, sorted(add.schema["properties"])) == ("Add two numbers.", ["a", "b"])
    assert [(tool.effect, tool.idempotent, tool.retry_safe) for tool in (add, wipe)] == [(None, False, False)] * 2
    linger = registry.tools["files__linger"]
    assert (linger.effect, linger.retry_safe, linger.timeout_s, linger.queue) == (Effect.READ_ONLY, True, 20.0, "mcp")
    assert (add.timeout_s, add.queue) == (30.0, "mcp")


def test_server_may_be_believed_and_tools_chosen() -> None:
    """``trust_hints`` uses the server's hints for effects; what the application declares takes precedence."""
    registry = Registry()
    asks: ToolKeywords = {"effect": Effect.LOCAL_WRITE, "approval": "always", "approval_timeout_s": 60}
    own: dict[str, ToolKeywords] = {"writes": asks}
    chosen = ["reads", "wipes", "writes", "hides"]
    names = registry.mcp("n", command=odd("hints"), trust_hints=True, include=chosen, exclude=["hides"], tools=own)
    assert names == ("n__reads", "n__wipes", "n__writes")
    tools = [registry.tools[name] for name in names]
    assert [tool.effect for tool in tools] == [Effect.READ_ONLY, Effect.DESTRUCTIVE, Effect.LOCAL_WRITE]
    assert [tool.approval_timeout_s for tool in tools] == [None, None, 60]
    assert [(tool.idempotent, tool.retry_safe) for tool in tools] == [(True, True), (False, False), (False, False)]
    assert registry.agent("a", model="m", tools=names).tool_names == names


def test_content_is_text(registry: Registry) -> None:
    """Texts are given verbatim; other content is described with its size, but not shown."""
    assert called(registry, "add", a=1, b=2) == "3"
    said = "  two\nlines \n[image, image/png, 10 bytes, not shown]\na note\n"
    assert called(registry, "show") == (
        f"{said}[resource notes://2, of no type, 10 bytes, not shown]\n[resource notes://3: third]"
    )


def test_structured_content_is_shown_if_there_is_no_other() -> None:
    """Servers repeat it as text, but need not."""
    alone = CallToolResult(content=[], structured_content={"größe": 7})
    assert text_of(alone) == '{"größe":7}'
    assert text_of(CallToolResult(content=[TextContent(text="7")], structured_content={"größe": 7})) == "7"


def test_answer_that_is_no_tool_result_is_a_doubt() -> None:
    """The tool may have run."""
    registry = Registry()
    registry.mcp("odd", command=odd("nonsense"))
    with pytest.raises(ToolOutcomeUnknown, match="odd sent something that is not a tool result"):
        registry.tools["odd__plain"].invoke({}, context())
    registry.close()


def test_what_a_server_prints_is_told_without_its_words(caplog: pytest.LogCaptureFixture) -> None:
    """The log has no output of tools, which a message that cannot be read may hold; the call goes on."""
    registry = Registry()
    registry.mcp("odd", command=odd("prints"))
    assert registry.tools["odd__plain"].invoke({}, context()) == "plain"
    registry.close()
    assert "Failed to parse JSONRPC message from server" in caplog.text
    assert "Failed to validate notification" in caplog.text
    assert "words" not in caplog.text


def test_error_of_a_tool_is_its_text(registry: Registry) -> None:
    """It is a definite failure, to which the model may react."""
    with pytest.raises(ToolError, match=r"^.*no such file$") as failed:
        called(registry, "fail", words="no such file")
    assert type(failed.value) is ToolError


def test_server_learns_the_key_and_only_its_own_environment(registry: Registry, notes: Notes) -> None:
    """The server gets the idempotency key, and only the environment variables that it was given."""
    called(registry, "write", text="x")
    assert [line["key"] for line in notes.of("wrote")] == ["t:0.0"]
    told = json.loads(called(registry, "process"))
    assert (told["token"], told["home"]) == (SECRET, False)


def test_connection_is_kept_until_its_server_dies(notes: Notes) -> None:
    """Calls share a server; after its death the next call starts another and succeeds, which closing ends."""
    endpoint = endpoint_of("files", command=STDIO, env={"NOTES": str(notes.file)}, cwd=None, url=None, headers=None)
    kept = KeptConnection(endpoint, mode="auto", connect_timeout_s=20.0)
    process = McpTool(server="files", tool="process", kept=kept)
    pid, again = (json.loads(process({}, context()))["pid"] for _ in range(2))
    assert pid == again
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not kept.is_open, "the harness to notice")
    other = json.loads(process({}, context()))["pid"]
    assert other != pid
    kept.close()
    assert not runs(other)


def test_death_of_the_server_in_a_call_is_told_as_such(registry: Registry, notes: Notes) -> None:
    """Nobody can say what the call has done."""
    wait = soon(lambda: os.kill(notes.wait("lingers")["pid"], signal.SIGKILL))
    with pytest.raises(ToolOutcomeUnknown, match="files did not answer: Connection closed"):
        called(registry, "linger", s=30)
    wait()


def test_call_past_its_time_is_cancelled_and_its_server_replaced(registry: Registry, notes: Notes) -> None:
    """The server is told of the cancel; one that does not answer in time gets no later call."""
    before = pid_of(registry)
    with pytest.raises(ToolOutcomeUnknown, match="files did not answer in time"):
        called(registry, "linger", 2.0, s=600)
    assert pid_of(registry) != before
    assert notes.wait("cancelled")["pid"] == before
    wait_until(lambda: not runs(before), "the server that was replaced to end", 20)


def test_call_that_is_given_up_harms_no_other(behind: HttpServer, notes: Notes) -> None:
    """Its connection takes no later call, which opens another, but is closed only when the calls on it have ended."""
    kept = _kept(behind.url)
    linger = tool("linger", kept)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(linger, {"s": 5.0}, context())
        notes.wait("lingers")
        with pytest.raises(ToolOutcomeUnknown):
            linger({"s": 30.0}, context(seconds=1.0))
        wait_until(lambda: not kept.is_open, "the connection to take no more calls", 10)
        assert tool("add", kept)({"a": 1, "b": 1}, context()) == "2"
        kept.close()
        assert other.result() == "lingered"


def test_call_may_take_longer_than_connecting_may(behind: HttpServer) -> None:
    """The limit is for opening a connection, not for how long it lasts."""
    endpoint = endpoint_of("tickets", command=None, env=None, cwd=None, url=behind.url, headers=None)
    kept = KeptConnection(endpoint, mode="auto", connect_timeout_s=4.0)
    assert tool("linger", kept)({"s": 4.5}, context()) == "lingered"
    kept.close()


@pytest.mark.acceptance
def test_server_that_hears_nothing_is_ended_with_all_it_started(registry: Registry, notes: Notes) -> None:
    """Not even a child of the server is left."""
    pid = pid_of(registry)  # so that it has connected, which takes time as well
    with pytest.raises(ToolOutcomeUnknown):
        called(registry, "hang", 3.0)
    assert notes.wait("hangs")["pid"] == pid
    family = [pid, *(child.pid for child in psutil.Process(pid).children())]
    assert len(family) == 2
    wait_until(lambda: not any(map(runs, family)), "the server and its child to end", 20)


def test_nothing_is_left_of_a_process_that_is_killed(notes: Notes) -> None:
    """If a tool process is killed during a call, its servers end, and so does what they started."""
    program = (
        "from harness_worker import Registry\n"
        "from tests.mcp_servers import context\n"
        "import sys\n"
        f"registry = Registry()\nregistry.mcp('files', command={STDIO!r}, env={{'NOTES': {str(notes.file)!r}}})\n"
        "registry.tools['files__hang'].invoke({}, context())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) as caller:
        try:
            pid = notes.wait("hangs")["pid"]
            family = [pid, *(child.pid for child in psutil.Process(pid).children())]
        finally:
            caller.kill()
    wait_until(lambda: not any(map(runs, family)), "the server and its child to end")
    assert len(family) == 2


@pytest.fixture
def harness(registry: Registry, tmp_path: Path) -> Callable[..., TurnResult]:
    """Runs a turn whose model makes these calls in this process, together or each in its own step."""

    def run(*calls: tuple[str, dict[str, object]], in_turn: bool = False) -> TurnResult:
        asked = [
            {"type": "tool_use", "id": f"u{place}", "name": f"files__{tool}", "input": arguments}
            for place, (tool, arguments) in enumerate(calls)
        ]
        steps = [[each] for each in asked] if in_turn else [asked]
        said = [*steps, [{"type": "text", "text": "done"}]]
        lines = [{"script": "default", "step": step, "content": content} for step, content in enumerate(said)]
        script = tmp_path / "script.jsonl"
        script.write_text("".join(json.dumps(line) + "\n" for line in lines))
        agent = f"agent-{tmp_path.name}"
        registry.agent(agent, model=f"scripted:{script}", tools=list(registry.tools))
        harness = AgentHarness(registry, Settings(home=tmp_path))
        turn = harness.run_turn(None, "go", agent=agent)
        harness.close()
        return turn

    return run


@pytest.mark.parametrize(
    ("asks", "words"), [(False, "nobody can give here: How many?"), (True, "Cannot send 'elicitation/create'")]
)
def test_server_that_asks_for_input_fails_the_call_and_blocks_nothing(
    harness: Callable[..., TurnResult], notes: Notes, asks: bool, words: str
) -> None:
    """Nobody can give the input, so the call fails and says what is missing; the model may call again."""
    asked, said = harness(("book", {"asks": asks}), ("book", {"seats": 2}), in_turn=True).calls
    assert asked.outcome == "ToolFailure"
    assert words in (asked.content or "")
    assert (said.outcome, said.content) == ("ToolExecutionResult", "2 seats")
    assert len(notes.of("books")) == 2


def test_read_whose_server_died_is_asked_again_unseen(harness: Callable[..., TurnResult], notes: Notes) -> None:
    """Two reads share a connection that breaks, and both succeed on the next one."""
    wait = soon(lambda: os.kill(notes.wait("lingers", 2)["pid"], signal.SIGKILL))
    turn = harness(("linger", {"s": 30, "once": True}), ("linger", {"s": 31, "once": True}))
    wait()
    assert [(call.outcome, call.content) for call in turn.calls] == [("ToolExecutionResult", "lingered")] * 2
    assert turn.output_text == "done"


def test_write_whose_server_died_is_in_doubt(harness: Callable[..., TurnResult], notes: Notes) -> None:
    """It does not run again, and no later call of its message runs."""
    wait = soon(lambda: os.kill(notes.wait("hangs")["pid"], signal.SIGKILL))
    hang, write = harness(("hang", {}), ("write", {"text": "x"})).calls
    wait()
    doubt = "outcome_unknown: files__hang started, and files did not answer: Connection closed; its effect may or may"
    assert (hang.content or "").startswith(doubt)
    assert (write.content or "").startswith("denied: not_run: ")
    assert (len(notes.of("hangs")), notes.of("wrote")) == (1, [])


def test_http_server_is_called_with_its_headers(kept: KeptConnection, before: Proxy, notes: Notes) -> None:
    """Every request has them."""
    before.seen.clear()
    assert tool("write", kept)({"text": "x"}, context()) == "wrote x"
    assert [(line["key"], line["token"]) for line in notes.of("wrote")] == [("t:0.0", SECRET)]
    assert {headers["x-token"] for headers in before.seen} == {SECRET}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_http_server_hears_that_a_call_was_given_up(behind: HttpServer, notes: Notes, mode: Mode) -> None:
    """This holds for the newest kind of protocol and for older ones."""
    kept = _kept(behind.url, mode)
    tool("add", kept)({"a": 1, "b": 1}, context())  # so that it has connected, which takes time as well
    with pytest.raises(ToolOutcomeUnknown, match="tickets did not answer in time"):
        tool("linger", kept)({"s": 30}, context(seconds=2.0))
    assert notes.wait("cancelled")
    kept.close()


def test_connection_keeps_nothing_of_calls_that_have_ended(kept: KeptConnection) -> None:
    """It may be open for as long as its process lives."""

    def is_of_a_call(found: object) -> bool:
        kind: object = type(found)
        return kind is asyncio.Task and "_Connection._asked" in repr(found)

    def forgotten() -> bool:
        gc.collect()
        return not any(map(is_of_a_call, gc.get_objects()))

    for _ in range(3):
        tool("add", kept)({"a": 1, "b": 1}, context())
    wait_until(forgotten, "the calls to be forgotten")


def test_argument_that_is_wanted_in_a_header_is_there(kept: KeptConnection) -> None:
    """With the newest protocol, servers may route calls by such headers."""
    for region in ("eu", "us"):
        assert tool("route", kept)({"region": region}, context()) == f"{region} by {region}"


def test_headers_that_cannot_be_told_ask_nobody(before: Proxy) -> None:
    """The function that gives the headers belongs to the application, and may raise anything: no request is sent.

    The next call opens another connection.
    """
    failing = [KeyError(SECRET)]

    def told() -> dict[str, str]:
        if failing:
            raise failing[0]
        return {}

    endpoint = endpoint_of("tickets", command=None, env=None, cwd=None, url=before.url, headers=told)
    kept = KeptConnection(endpoint, mode="auto", connect_timeout_s=30.0)
    with pytest.raises(ToolTransientError, match="tickets was not reached: KeyError") as missed:
        tool("add", kept)({"a": 1, "b": 1}, context())
    assert type(missed.value) is ToolTransientError
    failing.clear()
    assert tool("add", kept)({"a": 1, "b": 1}, context()) == "2"
    kept.close()


def tool(name: str, kept: KeptConnection) -> McpTool:
    """A tool of the server over HTTP."""
    return McpTool(server="tickets", tool=name, kept=kept)


@pytest.fixture
def spoiled(before: Proxy) -> Generator[Proxy]:
    """A proxy, which forwards everything again after the test."""
    yield before
    before.status, before.loses, before.floods = None, False, False


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (401, ToolError, "tickets refused the call: HTTP 401"),
        (429, ToolTransientError, "tickets is busy"),
        (502, ToolOutcomeUnknown, "tickets did not answer: HTTP 502"),
    ],
)
def test_refusal_over_http_says_whether_the_tool_may_have_run(
    kept: KeptConnection, spoiled: Proxy, status: int, kind: type[ToolError], said: str
) -> None:
    """A 4xx status means that it did not run; after a 5xx status it may be running."""
    spoiled.status = status
    with pytest.raises(ToolError) as failed:
        tool("write", kept)({"text": "x"}, context())
    assert (type(failed.value), str(failed.value)) == (kind, said)


def test_answer_that_is_lost_is_no_failure(kept: KeptConnection, spoiled: Proxy, notes: Notes) -> None:
    """The tool has run, so the call is in doubt; other calls of the connection are not harmed."""
    tool("add", kept)({"a": 1, "b": 1}, context())
    spoiled.loses = True
    with pytest.raises(ToolOutcomeUnknown, match="tickets did not answer: RemoteProtocolError"):
        tool("write", kept)({"text": "x"}, context())
    assert len(notes.of("wrote")) == 1
    spoiled.loses = False
    assert tool("add", kept)({"a": 1, "b": 1}, context()) == "2"


def test_lack_of_memory_at_any_line_hides_nothing_that_was_done(kept: KeptConnection, notes: Notes) -> None:
    """Once the server may have been asked, a failure would say that it was not."""
    write = McpTool(server="tickets", tool="write", kept=kept)
    doubts = 0
    for at in range(MOST_LINES):
        striker = Striker("adapters/mcp/calls.py", at)
        notes.clear()
        try:
            answer = striker.run(lambda: write({"text": "x"}, context()))
        except ToolOutcomeUnknown:
            doubts += 1
        else:
            assert (answer is None) == (not notes.of("wrote")), f"after a lack of memory before line {at}"
        if not striker.has_struck:
            break
    assert doubts > 1


def test_answer_that_is_too_long_is_not_kept(kept: KeptConnection, spoiled: Proxy) -> None:
    """The limit counts the unpacked answer; the tool has run, and other calls of the connection are not harmed."""
    spoiled.floods = True
    with pytest.raises(ToolOutcomeUnknown, match="tickets did not answer: its answer is longer than 67108864 bytes"):
        tool("write", kept)({"text": "x"}, context())
    spoiled.floods = False
    assert tool("add", kept)({"a": 1, "b": 1}, context()) == "2"


def test_restarted_server_is_met_anew(behind: HttpServer) -> None:
    """While it is away, it was not asked; once it is back without its sessions, calls succeed."""
    kept = _kept(behind.url, "legacy")
    add = tool("add", kept)
    assert add({"a": 1, "b": 1}, context()) == "2"
    behind.kill()
    with pytest.raises(ToolTransientError) as missed:
        add({"a": 1, "b": 1}, context())
    assert type(missed.value) is ToolTransientError
    behind.start()
    assert add({"a": 1, "b": 1}, context()) == "2"
    kept.close()


def test_three_hundred_tools_are_listed_and_nothing_is_left_of_that() -> None:
    """They are listed in pages; no connection or thread is left, so that the importing process may fork."""
    threads = {thread.name for thread in threading.enumerate()}
    children = {child.pid for child in psutil.Process().children(recursive=True)}
    registry = Registry()
    names = registry.mcp("odd", command=odd("many"))
    assert len(set(names)) == MANY
    wait_until(lambda: {thread.name for thread in threading.enumerate()} <= threads, "the listing's threads to end")
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= children
    assert registry.tools["odd__t299"].invoke({}, context()) == "t299"
    registry.close()


def test_odd_names_are_made_fit() -> None:
    """The server is called with its own name of the tool, whatever the tool is called here."""
    registry = Registry()
    names = registry.mcp("odd", command=odd("names"))
    assert len(set(names)) == 6
    assert all(len(name) <= 64 for name in names)
    assert registry.tools[names[3]].invoke({}, context()) == "x" * 100
    registry.close()


def test_tool_that_cannot_be_registered_may_be_left_out() -> None:
    """The message says how, and the same registry takes the others; a server without any tool is refused too."""
    registry = Registry()
    with pytest.raises(ConfigError, match=r"not a valid JSON Schema: .*; or leave it out with exclude=\['bad'\]$"):
        registry.mcp("odd", command=odd("schema"))
    assert registry.mcp("odd", command=odd("schema"), exclude=["bad"]) == ("odd__good",)
    with pytest.raises(ConfigError, match=r"'odd__x_y_b24ca9' is registered twice; .*exclude=\['x_y_b24ca9'\]$"):
        Registry().mcp("odd", command=odd("alike"))
    with pytest.raises(ConfigError, match="MCP server 'none': no tool is left of: none"):
        Registry().mcp("none", command=odd("none"))


def test_server_that_goes_when_asked_anything_before_its_handshake_is_spoken_with() -> None:
    """Some servers of the protocol's older kind do so."""
    registry = Registry()
    (name,) = registry.mcp("old", command=odd("strict"))
    assert registry.tools[name].invoke({}, context()) == "plain"
    registry.close()


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ({"command": ["no-such-program", "x"]}, "MCP server 's' (no-such-program x) cannot be asked for its tools: "),
        ({"command": ["no-such-program"]}, "it said: no-such-program: No such file or directory; run the command"),
        ({"command": ["sh", "-c", "echo $KEY >&2"], "env": {"KEY": SECRET}}, "it said: ***; "),
        ({"command": ["sleep", "600"], "connect_timeout_s": 0.5}, "no answer within 0.5 s; "),
        ({"url": "http://user:pass@127.0.0.1:9/mcp", "headers": {"a": SECRET}}, "ConnectError: "),
    ],
)
def test_server_that_cannot_be_asked_is_a_wrong_setting(place: dict[str, Any], said: str) -> None:
    """The message says which server, what was tried and what to do, within bounds and without secrets."""
    with pytest.raises(ConfigError) as refused:
        Registry().mcp("s", **place)
    assert said in str(refused.value)
    assert SECRET not in str(refused.value)
    assert "pass" not in str(refused.value)


@pytest.mark.parametrize(("name", "value"), UNUSABLE)
def test_environment_that_cannot_be_used_is_told(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the password of a proxy."""
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=rf"what the environment says \(.*\): look at .*{name}") as refused:
        Registry().mcp("s", url="https://mcp.example/mcp")
    assert PASSWORD not in str(refused.value)


def test_how_to_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page shows a server, and an agent that uses it."""
    page = (ROOT / "docs" / "how-to" / "use-mcp-tools.md").read_text()
    stock, shop, elsewhere = BLOCK.findall(page)
    monkeypatch.chdir(tmp_path)
    Path("stock.py").write_text(stock)
    asked = {"type": "tool_use", "id": "u", "name": "stock__count", "input": {"item": "tea"}}
    said = [asked], [{"type": "text", "text": "Three."}]
    lines = [{"script": "default", "step": step, "content": content} for step, content in enumerate(said)]
    Path("shop.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    names: dict[str, Any] = {"__name__": "shop", "token": lambda: SECRET}
    exec(compile(shop, "shop.py", "exec"), names)  # noqa: S102 - our own page
    assert names["stock"] == ("stock__count", "stock__order")
    harness = AgentHarness(names["registry"], Settings(home=tmp_path))
    turn = harness.run_turn(None, "How much tea is left?")
    harness.close()
    assert [call.content for call in turn.calls] == ["3"]
    with pytest.raises(ConfigError, match="MCP server 'tickets'"):
        exec(compile(elsewhere.replace("tickets.example.org", "127.0.0.1:9"), "shop.py", "exec"), names)  # noqa: S102 - likewise


@pytest.mark.parametrize("refusal", [RuntimeError("can't start new thread"), MemoryError()])
def test_call_that_gets_no_thread_is_not_sent(
    behind: HttpServer, monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    """It may be tried again, whatever it does; the next one is sent once there are threads again."""

    def refuse(_: threading.Thread) -> None:
        raise refusal

    kept, loops = _kept(behind.url), list[asyncio.AbstractEventLoop]()
    make = asyncio.new_event_loop

    def made() -> asyncio.AbstractEventLoop:
        loops.append(make())
        return loops[-1]

    with monkeypatch.context() as scarce:
        scarce.setattr(asyncio, "new_event_loop", made)
        scarce.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ToolTransientError, match=r"was not reached: (can't start new thread|MemoryError)"):
            tool("note", kept)({"text": "x"}, context())
    assert [loop.is_closed() for loop in loops] == [True]
    assert tool("add", kept)({"a": 1, "b": 1}, context()) == "2"
    kept.close()


def test_call_that_gets_no_file_is_not_sent(behind: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it got no thread."""
    monkeypatch.setattr(sys, "unraisablehook", ignore)  # asyncio's, over the loop that it could not make
    kept = _kept(behind.url)
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, usual[1]))  # with 0, the `poll` of the proxy would be refused
    try:
        with pytest.raises(ToolTransientError, match=r"was not reached: .*Too many open files"):
            tool("note", kept)({"text": "x"}, context())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    assert tool("add", kept)({"a": 1, "b": 1}, context()) == "2"
    kept.close()


def test_calls_are_answered_whenever_their_connection_is_closed(behind: HttpServer) -> None:
    """Each is answered on the connection that is being closed, or on the next one."""
    kept, callers, over = _kept(behind.url), 4, threading.Event()

    def call_often() -> set[str]:
        return {tool("add", kept)({"a": 1, "b": 1}, context()) for _ in range(25)}

    def close_often() -> None:
        while not over.is_set():
            kept.close()

    with ThreadPoolExecutor(callers + 1) as pool:
        closing = pool.submit(close_often)
        try:
            assert [call.result() for call in [pool.submit(call_often) for _ in range(callers)]] == [{"2"}] * callers
        finally:
            over.set()
        closing.result()
    kept.close()


def test_call_that_is_given_up_as_it_is_begun_does_not_go_on(
    behind: HttpServer, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop may come in the moment between handing the call to the connection's thread and waiting for the answer."""
    kept, loops, make = _kept(behind.url), list[asyncio.AbstractEventLoop](), asyncio.new_event_loop

    def made() -> asyncio.AbstractEventLoop:
        loops.append(make())
        return loops[-1]

    monkeypatch.setattr(asyncio, "new_event_loop", made)
    assert tool("add", kept)({"a": 1, "b": 1}, context()) == "2"
    (loop,) = loops
    hand_over = loop.call_soon_threadsafe

    def hand_over_and_stop(begin: Callable[[], object]) -> None:
        monkeypatch.undo()
        hand_over(begin)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "call_soon_threadsafe", hand_over_and_stop)
    with pytest.raises(KeyboardInterrupt):
        tool("linger", kept)({"s": 90.0}, context(seconds=100.0))
    assert tool("add", kept)({"a": 1, "b": 1}, context()) == "2"
    wait_until(lambda: len(notes.of("lingers")) == len(notes.of("cancelled")), "the server to hear of it")
    kept.close()


def test_connection_that_fails_when_nobody_waits_for_it_any_more_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """The call has been answered long since."""
    with listening_socket() as silent:
        kept = _kept(f"http://{LOOPBACK}:{silent.getsockname()[1]}/mcp")
        with pytest.raises(ToolTransientError):
            tool("add", kept)({"a": 1, "b": 1}, context(seconds=0.5))
    wait_until(lambda: "no connection: " in caplog.text, "the attempt to end")
    kept.close()
    assert _complaints(caplog) == ["harness_worker.adapters.mcp.keeping"]


def test_call_that_fails_after_it_was_given_up_is_no_news(behind: HttpServer, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is left to be told."""
    kept = _kept(behind.url)
    assert tool("add", kept)({"a": 1, "b": 1}, context()) == "2"

    async def fail_late(_: Client) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("gone") from None

    with pytest.raises(TimeoutError):
        kept.ask(fail_late, Exchange(), within_s=0.1)
    kept.close()
    assert _complaints(caplog) == []


def _complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The names of the loggers that had something to complain of."""
    return [record.name for record in caplog.records if record.levelno >= logging.WARNING]
