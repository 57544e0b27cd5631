"""The demonstration's agent on Claude's adapter, in a whole stack with a fake key and a stub of the Messages API."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from harness_worker.client.client import GatewayClient
from harness_worker.core.visits import MODEL_SLACK_S
from harness_worker.entrypoints.stack import StackInfo, open_stack
from harness_worker.testing.messages_replies import Ending, Refusal, Reply, said, tool_use
from harness_worker.testing.messages_stub import MessagesStub, messages_stub
from harness_worker.testing.waiting import wait_until
from tests.stacks import run_harness

SHOP: Final = "harness_worker.demo.shop:registry"
ADDRESS: Final = "12 Harbour Street, 5003 Bergen"
QUESTION: Final = f"Where is my order 1042? I'm moving to {ADDRESS}."
ANSWER: Final = "It is in our warehouse and will go to your new address."
PAUSE_S: Final = 15
pytestmark = pytest.mark.xdist_group("shop-on-stub")


@pytest.fixture(scope="module")
def stub() -> Generator[MessagesStub]:
    """A provider whose replies the tests script."""
    with messages_stub() as running:
        yield running


@pytest.fixture(scope="module")
def stack(stub: MessagesStub, tmp_path_factory: pytest.TempPathFactory) -> Generator[StackInfo]:
    """The demonstration's stack with a key."""
    env = {"ANTHROPIC_API_KEY": "sk-ant-fake", "ANTHROPIC_BASE_URL": stub.url}
    home = tmp_path_factory.mktemp("shop-on-stub")
    with open_stack(home=home, app=SHOP, tools=2, env=env) as info:
        yield info
        assert "sk-ant-fake" not in (home / "logs" / "up.log").read_text()


@pytest.fixture
def client(stack: StackInfo) -> Generator[GatewayClient]:
    """A client of the stack."""
    with GatewayClient(stack.gateway_url) as client:
        yield client


def asked(question: str = QUESTION) -> dict[str, Any]:
    """The body of a turn."""
    return {"agent": "support", "input": question}


def test_demo_turn_takes_the_anthropic_path_end_to_end(stub: MessagesStub, client: GatewayClient) -> None:
    """Claude asks for reads and then for writes, the shop's real tools run, and Claude's text is the answer."""
    before = len(stub.asked)
    stub.answer(
        Reply(
            content=[
                {"type": "thinking", "thinking": "Look first.", "signature": "EqQB"},
                {"type": "text", "text": "Let me look."},
                tool_use(1, "get_order", order_id="1042"),
                tool_use(2, "track_shipment", order_id="1042"),
                tool_use(3, "get_policy", topic="address change"),
            ]
        ),
        Reply(
            content=[
                tool_use(4, "change_address", order_id="1042", address=ADDRESS),
                tool_use(5, "send_email", order_id="1042", subject="New address", body=ADDRESS),
            ]
        ),
        said(ANSWER, usage={"input_tokens": 400, "cache_read_input_tokens": 2_000, "output_tokens": 40}),
    )
    turn = client.create_turn(**asked(), wait_s=30)
    assert (turn["status"], turn["output_text"]) == ("completed", ANSWER)
    ran = [(call["tool"], call["outcome"], call["wave"]) for call in turn["calls"]]
    assert ran == [
        ("get_order", "ToolExecutionResult", 0),
        ("track_shipment", "ToolExecutionResult", 0),
        ("get_policy", "ToolExecutionResult", 0),
        ("change_address", "ToolExecutionResult", 0),
        ("send_email", "ToolExecutionResult", 1),
    ]
    assert turn["usage"]["cache_read_tokens"] == 2_000
    assert turn["usage"]["dollars"] > 0
    first, _, last = (request.body for request in stub.asked[before:])
    assert first["model"].startswith("claude-")
    assert "home-goods shop" in first["system"]
    assert len(first["tools"]) == 12
    assert last["messages"][1]["content"][0]["signature"] == "EqQB"
    results = [block["content"] for block in last["messages"][-1]["content"]]
    assert json.loads(results[0])["address"] == ADDRESS
    assert len(results) == 2


def test_second_turn_of_a_session_is_asked_with_the_first(stub: MessagesStub, client: GatewayClient) -> None:
    """A turn posted while the first runs waits for it; its request begins with all of the first one's."""
    before = len(stub.asked)
    stub.answer(
        Reply(content=[tool_use(1, "get_order", order_id="1042")]), said("Shipped.", pause_s=0.2), said("Soon.")
    )
    first = client.create_turn(**asked(), session_id="talk")
    second = client.create_turn(**asked("When?"), session_id="talk", wait_s=30)
    assert (second["status"], second["output_text"]) == ("completed", "Soon.")
    assert client.turn(first["id"])["finished_at"] <= second["started_at"]
    _, whole, last = (request.body for request in stub.asked[before:])
    assert last["messages"][: len(whole["messages"])] == whole["messages"]
    assert last["messages"][-2]["content"] == [{"type": "text", "text": "Shipped."}]
    assert last["messages"][-1]["content"][-1]["text"] == "When?"
    assert (last["system"], last["tools"]) == (whole["system"], whole["tools"])


def test_text_is_seen_live_and_costs_no_number(stub: MessagesStub, client: GatewayClient, stack: StackInfo) -> None:
    """The stream shows the text while it is said, as hints without id; the ids of durable events have no gap.

    The turn waits for an earlier one of its session until the stream is read.
    """
    before = len(stub.asked)
    stub.answer(said(ANSWER, ending=Ending.HANG, after=4), said(ANSWER, piece_chars=4, pause_s=0.02))
    ahead, turn = (client.create_turn(**asked(), session_id="live") for _ in range(2))
    wait_until(lambda: len(stub.asked) > before, "the model call of the turn ahead")
    url = f"{stack.gateway_url}/v1/turns/{turn['id']}/events"
    with httpx2.stream("GET", url, headers={"Accept": "text/event-stream"}, timeout=30) as response:
        lines: list[str] = []
        for line in response.iter_lines():
            if not lines:
                client.cancel(ahead["id"])
            lines.append(line)
    frames = [frame.split("\n") for frame in "\n".join(lines).split("\n\n") if frame.startswith("event: ")]
    kinds = [frame[0].removeprefix("event: ") for frame in frames]
    hints = [frame for frame in frames if frame[0] == "event: model.delta"]
    assert len(hints) > 1
    assert kinds.index("model.delta") < kinds.index("model.completed")
    assert not any(line.startswith("id:") for frame in hints for line in frame)
    events = [json.loads(frame[-1].removeprefix("data: ")) for frame in hints]
    assert all("seq" not in event and event["data"]["step"] == 0 for event in events)
    assert ANSWER.endswith("".join(event["data"]["text"] for event in events))
    ids = [int(line.removeprefix("id: ")) for frame in frames for line in frame if line.startswith("id: ")]
    assert ids == list(range(1, len(ids) + 1))


def test_cancel_in_the_middle_of_the_text_closes_the_connection(stub: MessagesStub, client: GatewayClient) -> None:
    """The connection to a provider that would never end is closed, and the turn is over, with the text said so far."""
    before = len(stub.asked)
    stub.answer(said(ANSWER, ending=Ending.HANG, after=4))
    turn = client.create_turn(**asked())
    request = wait_until(lambda: stub.asked[before] if len(stub.asked) > before else None, "the model call")
    wait_until(request.sent.is_set, "the beginning of the text")
    client.cancel(turn["id"])
    assert request.left.wait(20)
    ended = wait_until(lambda: _ended(client, turn["id"]), "the end")
    assert ended["status"] == "cancelled"
    assert ANSWER[:16].startswith(ended["output_text"])  # what had been read by then


def test_demo_command_says_that_claude_answers(stub: MessagesStub, tmp_path_factory: pytest.TempPathFactory) -> None:
    """With a key, ``harness demo`` asks Claude all three questions."""
    stub.answer(*(said(f"Answer {number}.") for number in range(3)))
    env = {"ANTHROPIC_API_KEY": "sk-ant-fake", "ANTHROPIC_BASE_URL": stub.url}
    ran = run_harness("demo", "--home", str(tmp_path_factory.mktemp("demo-on-stub")), env=env)
    assert ran.returncode == 0, ran.stderr
    assert "Its model is claude-" in ran.stdout
    assert "Answer 2." in ran.stdout


def _ended(client: GatewayClient, turn_id: str) -> dict[str, Any] | None:
    turn = client.turn(turn_id)
    return turn if turn["status"] not in ("queued", "running") else None


@pytest.mark.acceptance
def test_provider_that_wants_a_long_pause_is_asked_again_once_and_in_time(stub: MessagesStub, tmp_path: Path) -> None:
    """The pause lasts longer than a visit usually may; meanwhile no other coordinator takes the turn over."""
    before = len(stub.asked)
    busy = Refusal(status=429, kind="rate_limit_error", message="slow down", headers={"retry-after": str(PAUSE_S)})
    stub.answer(busy, said(ANSWER))
    timeout = {"HARNESS_MODEL_TIMEOUT_S": str(PAUSE_S - MODEL_SLACK_S - 2)}
    env = {"ANTHROPIC_API_KEY": "sk-ant-fake", "ANTHROPIC_BASE_URL": stub.url, **timeout}
    with open_stack(home=tmp_path, app=SHOP, tools=1, env=env) as info, GatewayClient(info.gateway_url) as client:
        began = time.monotonic()
        turn = client.create_turn(**asked(), wait_s=2 * PAUSE_S)
        assert (turn["status"], turn["output_text"]) == ("completed", ANSWER)
        assert time.monotonic() - began >= PAUSE_S
        assert len(stub.asked) - before == 2
        assert "turn.redelivered" not in [event["type"] for event in client.events(turn["id"], follow=False)]
