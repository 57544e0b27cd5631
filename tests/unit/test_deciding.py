"""Answering turns from the command line: what is sent, and what is said of what cannot be."""

from __future__ import annotations

import io
import json
import os
import pty
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from rich.console import Console

from harness_worker.client.client import GatewayClient, RequestRefused
from harness_worker.entrypoints.cli.turns.decisions import arguments_from, decide
from harness_worker.entrypoints.cli.turns.prompting import prompting
from harness_worker.entrypoints.view.questions import questions
from harness_worker.errors import ConfigError, HarnessError
from tests.unit.engine_kit import SetClock

ASKED: list[dict[str, Any]] = [
    {"call_id": "0.0", "tool": "refund", "arguments": {"order": "ö1"}, "expires_at": "…"},
    {"call_id": "0.2", "tool": "look", "arguments": {}, "expires_at": "…"},
]


BELOW: list[dict[str, Any]] = [{**ASKED[0], "turn_id": "b"}, {**ASKED[1], "turn_id": "c"}]


class Gateway:
    """A gateway that keeps what it was sent."""

    def __init__(self, actions: list[dict[str, Any]], **members: object) -> None:
        self.turn: dict[str, Any] = {"id": "t", "status": "requires_action", "required_actions": actions, **members}
        self.answered: list[str] = []
        self.sent: list[dict[str, Any]] = []
        self.looks = 0
        self.refusals: list[httpx2.Response | Exception] = []
        """What it gives, one after the other, before it takes an answer."""
        self.client = GatewayClient("http://gateway", patience_s=0, transport=httpx2.MockTransport(self._answer))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST" and self.refusals:
            refusal = self.refusals.pop(0)
            if isinstance(refusal, Exception):
                raise refusal
            return refusal
        if request.method == "GET":
            self.looks += 1
        else:
            self.answered.append(request.url.path.split("/")[3])
            assert request.url.path == f"/v1/turns/{self.answered[-1]}/inputs"
            self.sent.append(json.loads(request.content))
        return httpx2.Response(200, json={**self.turn, "id": request.url.path.split("/")[3]})


def refusal(status: int, code: str, **members: str) -> httpx2.Response:
    """What a gateway refuses with."""
    return httpx2.Response(status, json={"status": status, "code": code, "title": "no", **members})


def test_question_holds_no_control_characters() -> None:
    """What a model asks for cannot rewrite what the person is asked, nor turn its direction."""
    (question,) = questions({"required_actions": [{**ASKED[0], "arguments": {"order": "1\x9b2K\u202e\x1b[A2"}}]})
    assert question == '0.0 refund {"order": "1·2K·\\u001b[A2"}'


def test_decision_without_a_call_is_one_for_each_that_waits() -> None:
    """What is not said is not sent."""
    gateway = Gateway(ASKED)
    decide(gateway.client, "t", None, "deny", reason="no", arguments=None)
    assert gateway.sent == [{"call_id": call_id, "decision": "deny", "reason": "no"} for call_id in ("0.0", "0.2")]


def test_decision_without_a_call_is_also_one_for_each_below() -> None:
    """Sent to the turn that waits; a call that is named is the turn's own."""
    gateway = Gateway(ASKED[:1], subagent_actions=BELOW)
    assert decide(gateway.client, "t", None, "approve")["id"] == "t"
    assert gateway.answered == ["t", "b", "c"]
    assert [said["call_id"] for said in gateway.sent] == ["0.0", "0.0", "0.2"]
    decide(gateway.client, "t", "0.2", "deny")
    assert gateway.answered[3:] == ["t"]


def test_decision_on_a_call_is_sent_as_it_is() -> None:
    """Whether it waits is for the gateway to say."""
    gateway = Gateway([])
    decide(gateway.client, "t", "0.7", "approve", arguments={"n": 1})
    assert gateway.sent == [{"call_id": "0.7", "decision": "approve", "arguments": {"n": 1}}]
    assert gateway.looks == 0


@pytest.mark.parametrize(
    ("actions", "kind", "message"),
    [([], HarnessError, "none of its calls waits"), (ASKED, ConfigError, r"2 calls wait \(0.0, 0.2\)")],
)
def test_decision_that_means_nothing_is_refused(
    actions: list[dict[str, Any]], kind: type[HarnessError], message: str
) -> None:
    """Nothing waits, which is no wrong usage, or one set of arguments is for several calls."""
    gateway = Gateway(actions)
    with pytest.raises(HarnessError, match=message) as refused:
        decide(gateway.client, "t", None, "approve", arguments={"n": 1})
    assert refused.type is kind
    assert gateway.sent == []


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[1]", "7", '{"a": NaN}', '{"a": 1e400}', '{"a": "\\ud800"}', '{"a": "\udcff"}'),
        pytest.param('{"a": ' * 3_000 + "1" + "}" * 3_000, id="deep"),
    ],
)
def test_arguments_that_cannot_be_sent_are_refused(text: str) -> None:
    """The message shows an example of an object."""
    with pytest.raises(ConfigError, match="write a JSON object"):
        arguments_from(text)
    assert arguments_from('{"a": 1}') == {"a": 1}
    assert arguments_from(None) is None


def test_questions_are_a_line_a_call() -> None:
    """They are written for people to read."""
    assert questions({"required_actions": ASKED}) == ['0.0 refund {"order": "ö1"}', "0.2 look {}"]
    below = questions({"required_actions": [], "subagent_actions": BELOW})
    assert below == ['0.0 refund {"order": "ö1"} of turn b', "0.2 look {} of turn c"]


@pytest.mark.parametrize("ask", [True, False])
def test_pipe_is_told_how_to_answer(ask: bool) -> None:
    """Nobody is asked where nobody sits; whoever reads the log can answer from elsewhere."""
    out, gateway = io.StringIO(), Gateway(ASKED)
    prompting(Console(file=out, width=200), SetClock(0.0), ask=ask, options=" --home h")(gateway.client, gateway.turn)
    assert 'waiting for approval: 0.0 refund {"order": "ö1"}' in out.getvalue()
    assert "harness turns approve t --home h, or deny" in out.getvalue()
    assert gateway.sent == []


def test_pipe_is_told_of_each_question_once() -> None:
    """Turns below wait one after the other, and each event shows all that wait."""
    out, gateway = io.StringIO(), Gateway([], subagent_actions=BELOW)
    tell = prompting(Console(file=out, width=200), SetClock(0.0), ask=False, options="")
    for actions in (BELOW[:1], BELOW, BELOW[1:]):
        tell(gateway.client, {**gateway.turn, "subagent_actions": actions})
    assert out.getvalue().splitlines() == [
        '  waiting for approval: 0.0 refund {"order": "ö1"} of turn b',
        "  harness turns approve b, or deny",
        "  waiting for approval: 0.2 look {} of turn c",
        "  harness turns approve c, or deny",
    ]


@contextmanager
def terminal_on_which(typed: bytes, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """A terminal for stdin, and what is typed there."""
    ours, terminal = pty.openpty()
    try:
        os.write(ours, typed)
        with open(terminal, closefd=False) as stdin:
            monkeypatch.setattr("sys.stdin", stdin)
            yield
    finally:
        os.close(ours)
        os.close(terminal)


def ask_at_terminal(gateway: Gateway, out: io.StringIO, clock: SetClock) -> None:
    """What ``harness run`` does there when the gateway's turn waits."""
    prompting(Console(file=out, width=200, force_terminal=True), clock, ask=True, options="")(
        gateway.client, gateway.turn
    )


def test_terminal_is_asked_for_those_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for the turn's own calls; the answer goes to the turn that waits."""
    gateway = Gateway([], subagent_actions=BELOW)
    with terminal_on_which(b"y\nn\n", monkeypatch):
        ask_at_terminal(gateway, io.StringIO(), SetClock(0.0))
    assert gateway.answered == ["b", "c"]
    assert [said["decision"] for said in gateway.sent] == ["approve", "deny"]


def test_question_that_is_broken_off_stops_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ctrl-C there is one of the whole command, which then cancels the turn; nothing is answered."""
    gateway = Gateway(ASKED)
    with terminal_on_which(b"\x04", monkeypatch), pytest.raises(KeyboardInterrupt):  # an end of input is told as one
        ask_at_terminal(gateway, io.StringIO(), SetClock(0.0))
    assert gateway.sent == []


def test_answer_is_given_again_while_the_gateway_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has answered is not asked again, so the answer must arrive."""
    gateway, clock, out = Gateway(ASKED[:1]), SetClock(0.0), io.StringIO()
    gateway.refusals = [refusal(503, "not_ready"), httpx2.ConnectError("restarting")]
    with terminal_on_which(b"y\n", monkeypatch):
        ask_at_terminal(gateway, out, clock)
    assert [said["decision"] for said in gateway.sent] == ["approve"]
    assert "not_ready" not in out.getvalue()
    assert clock.now_s > 0


@pytest.mark.parametrize("code", ["stale_input", "turn_finished"])
def test_answer_that_comes_too_late_is_told(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else was faster: that is no failure, and the next question is asked."""
    gateway, out = Gateway(ASKED), io.StringIO()
    gateway.refusals = [refusal(409, code, detail="too late")]
    with terminal_on_which(b"y\nn\n", monkeypatch):
        ask_at_terminal(gateway, out, SetClock(0.0))
    assert "too late" in out.getvalue()
    assert [said["decision"] for said in gateway.sent] == ["deny"]


def test_answer_that_is_refused_for_good_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a key that is revoked meanwhile nobody can answer, nor see the end."""
    gateway = Gateway(ASKED)
    gateway.refusals = [refusal(401, "unauthorized")]
    with terminal_on_which(b"y\ny\n", monkeypatch), pytest.raises(RequestRefused, match="401 unauthorized"):
        ask_at_terminal(gateway, io.StringIO(), SetClock(0.0))
    assert gateway.sent == []
