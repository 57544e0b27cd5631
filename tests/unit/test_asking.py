"""Asking one question: which agent gets it, and what is said when there is none."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from typing import Any

import httpx2
import pytest
from rich.console import Console

from harness_worker.client.client import GatewayClient, RequestRefused
from harness_worker.entrypoints.cli.asking import ask
from harness_worker.entrypoints.cli.options import pairs
from harness_worker.entrypoints.cli.output import console, write_json
from harness_worker.entrypoints.cli.standard_streams import tell
from harness_worker.errors import ConfigError

AT = "2026-01-01T00:00:00.000000Z"
USAGE = dict.fromkeys(
    ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "steps", "tool_calls", "dollars"), 0
)
EVIL = "\x1b]0;OWNED\x07\x9b2J"
TURN: dict[str, Any] = {
    "id": "t1",
    "status": "completed",
    "stop_reason": "end_turn",
    "usage": USAGE,
    "calls": [],
    "error": None,
}


def _gateway(agents: list[str], posted: list[dict[str, Any]], **ended: object) -> GatewayClient:
    """A gateway that serves ``agents`` and ends every turn at once."""
    turn = {**TURN, **ended}

    def answer(request: httpx2.Request) -> httpx2.Response:
        match (request.method, request.url.path):
            case ("POST", "/v1/turns"):
                posted.append(json.loads(request.content))
                if posted[-1]["agent"] in agents:
                    return httpx2.Response(202, json=turn)
                return httpx2.Response(404, json={"code": "unknown_agent", "title": "Unknown agent", "status": 404})
            case ("GET", "/v1/agents"):
                return httpx2.Response(200, json={"data": [{"name": name} for name in agents]})
            case ("GET", "/v1/turns/t1/events"):
                event: dict[str, Any] = {"seq": 1, "type": "turn.completed", "at": AT, "data": {}}
                return httpx2.Response(200, json={"data": [event], "next": None})
            case _:
                return httpx2.Response(200, json=turn)

    return GatewayClient("http://gateway", patience_s=0, transport=httpx2.MockTransport(answer))


def _ask(agents: list[str], agent: str | None, posted: list[dict[str, Any]] | None = None) -> str:
    out = io.StringIO()
    body = {"input": "hi", "agent": agent, "session_id": None}
    ask(_gateway(agents, posted if posted is not None else []), body, Console(file=out, width=80))
    return out.getvalue()


def test_ask_leaves_out_what_was_not_given() -> None:
    """Only what the user gave is posted."""
    posted: list[dict[str, Any]] = []
    assert "completed in" in _ask(["a", "b"], "b", posted)
    assert posted == [{"input": "hi", "agent": "b"}]


def test_ask_takes_the_only_agent() -> None:
    """With one agent there is nothing to choose."""
    posted: list[dict[str, Any]] = []
    _ask(["only"], None, posted)
    assert posted[0]["agent"] == "only"


def test_ask_without_agent_lists_those_there_are() -> None:
    """With several agents the user is told which."""
    with pytest.raises(ConfigError, match="say which agent with --agent; there are: a, b"):
        _ask(["b", "a"], None)


def test_ask_of_an_unknown_agent_lists_those_there_are() -> None:
    """A misspelt name is answered with the right ones."""
    with pytest.raises(ConfigError, match="there is no agent suport; there are: support"):
        _ask(["support"], "suport")


def test_ask_passes_other_refusals_on() -> None:
    """A refusal that is not about the agent is shown as it is."""
    client = GatewayClient(
        "http://gateway",
        patience_s=0,
        transport=httpx2.MockTransport(lambda _: httpx2.Response(429, json={"code": "queue_full"})),
    )
    with pytest.raises(RequestRefused):
        ask(client, {"input": "hi", "agent": "a"}, Console(file=io.StringIO()))


def test_events_go_to_stdout_while_a_terminal_shows_the_turn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program reads the JSON lines of ``harness run --json`` while a person watches the turn on stderr."""
    monkeypatch.setenv("TERM", "xterm")
    out = io.StringIO()
    screen = Console(file=out, width=80, force_terminal=True, color_system=None)
    ask(_gateway(["a"], []), {"input": "hi", "agent": "a"}, screen, write_json)
    assert json.loads(capsys.readouterr().out)["type"] == "turn.completed"
    assert "turn.completed" not in out.getvalue()


def test_ask_shows_an_error_without_control_characters() -> None:
    """What a model's or a tool's library said of its failure does not move the terminal's cursor."""
    turn = {**TURN, "status": "failed", "error": {"code": "internal", "message": f"it said {EVIL}"}}
    out = io.StringIO()
    ask(_gateway(["a"], [], **turn), {"input": "hi", "agent": "a"}, Console(file=out, width=80))
    assert "internal: it said ·]0;OWNED··2J" in out.getvalue()


def test_ask_tells_totals_and_error_on_a_line_each() -> None:
    """Whoever searches a log of it finds them whole; a terminal wraps by itself what is too long for it."""
    turn = {**TURN, "status": "failed", "error": {"code": "internal", "message": "why " * 30 + "not"}}
    out = io.StringIO()
    ask(_gateway(["a"], [], **turn), {"input": "hi", "agent": "a"}, Console(file=out, width=40))
    totals, error = out.getvalue().splitlines()
    assert totals.endswith("0 tokens, $0.0000")
    assert error.endswith("why not")


def test_answer_is_harmless_on_a_terminal_and_verbatim_in_a_pipe() -> None:
    """A terminal gets no escape sequence of a model; a program gets each character."""
    code = f"from harness_worker.entrypoints.cli.output import write_words; write_words({EVIL!r})"
    environment = {**os.environ, "PYTHONUTF8": "1"}
    piped = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert piped.stdout.decode() == f"{EVIL}\n"
    ours, terminal = pty.openpty()
    try:
        subprocess.run([sys.executable, "-c", code], env=environment, stdout=terminal, check=True)
        assert os.read(ours, 1_000).decode().strip() == "·]0;OWNED··2J"
    finally:
        os.close(ours)
        os.close(terminal)


def test_console_prints_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever approves a call reads the arguments that it runs with, not signs that their words stand for."""
    console().print('refund {"reason": ":bomb: [red]"}')
    assert capsys.readouterr().out == 'refund {"reason": ":bomb: [red]"}\n'


def test_error_message_of_a_command_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    """It may quote what a server or a library said; its lines stay lines."""
    tell(f"harness: refused: {EVIL}\n  try another")
    assert capsys.readouterr().err == "harness: refused: ·]0;OWNED··2J\n  try another\n"


def test_pairs_reads_keys_and_values() -> None:
    """Values may hold an equals sign, or nothing."""
    assert pairs(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}


@pytest.mark.parametrize("pair", ["a", "=1", ""])
def test_pairs_without_key_or_value_says_how(pair: str) -> None:
    """A pair that is none is wrong usage, with an example."""
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        pairs([pair])
