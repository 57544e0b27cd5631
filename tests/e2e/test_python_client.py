"""``GatewayClient`` at a running stack, whose gateway is killed meanwhile (docs/how-to/call-from-python.md)."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness_worker import GatewayClient, RequestRefused
from harness_worker.testing.waiting import wait_until
from tests.e2e.outsider import Json, Outsider, call
from tests.e2e.test_subagents import HELP, written
from tests.stacks import ROOT, role_pid

LONG_S = 60.0
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
pytestmark = pytest.mark.one_database("sqlite")
SLOWLY = {"content": [{"type": "text", "text": "done"}], "latency_s": 4.0}


@pytest.fixture
def client(outsider: Outsider) -> Generator[GatewayClient]:
    """A client as a service has one."""
    with GatewayClient(outsider.stack.gateway_url) as client:
        yield client


def kill_gateway(outsider: Outsider) -> None:
    """Kill it; the stack starts another one."""
    pid = wait_until(lambda: role_pid(outsider.stack.home, "gateway"), "the gateway to be there", LONG_S)
    os.kill(pid, signal.SIGKILL)


def test_turn_is_made_once_though_the_gateway_is_killed(outsider: Outsider, client: GatewayClient) -> None:
    """Its caller waits with the post, and gets the turn that the first gateway made from the second one."""
    session = f"once-{time.time()}"
    body = outsider.body("done", agent="held", session_id=session)
    body["metadata"]["word"] = session

    def running() -> list[Json]:
        return list(client.turns(session_id=session, status="running"))

    with ThreadPoolExecutor(1) as threads:
        posting = threads.submit(client.create_turn, **body, wait_s=30)
        (made,) = wait_until(running, "the turn to run", LONG_S)
        kill_gateway(outsider)
        outsider.give(session)
        turn = posting.result(LONG_S)
    assert (turn["id"], turn["status"], turn["output_text"]) == (made["id"], "completed", "done")
    assert [each["id"] for each in client.turns(session_id=session)] == [turn["id"]]


def test_key_makes_one_turn_for_callers_that_know_nothing_of_each_other(
    outsider: Outsider, client: GatewayClient
) -> None:
    """A service that was killed behind its post posts again; without a key each call is a turn."""
    body, key = outsider.body("done"), f"order-{time.time()}"
    with GatewayClient(outsider.stack.gateway_url) as again:
        ids = [each.create_turn(**body, idempotency_key=key)["id"] for each in (client, again)]
    assert ids[0] == ids[1]
    assert client.create_turn(**body)["id"] != client.create_turn(**body)["id"]
    with pytest.raises(RequestRefused, match="idempotency_mismatch"):
        client.create_turn(**outsider.body("something else"), idempotency_key=key)


def test_events_come_once_and_in_order_though_the_gateway_is_killed(outsider: Outsider, client: GatewayClient) -> None:
    """Whoever follows notices nothing but a pause, and may go on after any event."""
    turn = client.create_turn(**outsider.body([call("look", n=1)], SLOWLY))
    seqs: list[int] = []
    for event in client.events(turn["id"]):
        if event["type"] == "step.completed" and event["data"]["step"] == 0:
            kill_gateway(outsider)
        seqs += [event["seq"]] if "seq" in event else []
    recorded = list(client.events(turn["id"], follow=False))
    assert seqs == [event["seq"] for event in recorded] == list(range(1, len(recorded) + 1))
    assert recorded[-1]["type"] == "turn.completed"
    assert list(client.events(turn["id"], after=4)) == recorded[4:]
    assert list(client.events(turn["id"], after=len(recorded))) == []


def test_calls_are_approved_and_denied(outsider: Outsider, client: GatewayClient) -> None:
    """A wait ends when a person is needed; an answer that comes too late is refused."""
    asked = [call("ask_put", n=1), call("ask_put", n=2), call("ask_put", n=3)]
    turn = client.wait(client.create_turn(**outsider.body(asked, "done"))["id"], LONG_S)
    assert (turn["status"], len(turn["required_actions"])) == ("requires_action", 3)
    client.approve(turn["id"], "0.0")
    client.approve(turn["id"], "0.1", arguments={"n": 20}, reason="more of them")
    client.deny(turn["id"], "0.2", reason="too many")
    ended = client.wait(turn["id"], LONG_S)
    assert [each["content"] for each in ended["calls"]] == ["put 1", "put 20", "denied: approval: too many"]
    with pytest.raises(RequestRefused) as refused:
        client.approve(turn["id"], "0.0")
    assert (refused.value.status, refused.value.code) == (409, "turn_finished")


def test_message_denies_every_call_that_waits(outsider: Outsider, client: GatewayClient) -> None:
    """The model reads it, and goes on."""
    asked = [call("ask_put", n=1), call("look", n=1), call("ask_put", n=2)]
    turn = client.wait(client.create_turn(**outsider.body(asked, "done"))["id"], LONG_S)
    assert client.deny_all(turn["id"], "not today")["required_actions"] == []
    ended = client.wait(turn["id"], LONG_S)
    denied = "denied: approval: not today"
    assert [each["content"] for each in ended["calls"]] == [denied, '{"n":1}', denied]
    assert ended["output_text"] == "done"


def test_output_that_is_too_long_for_the_model_is_given_whole(outsider: Outsider, client: GatewayClient) -> None:
    """By the id that its call's content begins with, though the gateway is killed."""
    output = "ü\u2028" * 10_000
    turn = client.create_turn(**outsider.body([call("touch", keys=[output])], "done"), wait_s=30)
    (made,) = turn["calls"]
    assert made["outcome"] == "ToolArtifactReference"
    kill_gateway(outsider)
    assert client.artifact(made["content"].partition(": ")[0]) == output
    with pytest.raises(RequestRefused, match="there is no artifact 'art_0'") as refused:
        client.artifact("art_0")
    assert refused.value.code == "not_found"


def test_example_of_the_page_answers_a_turn(outsider: Outsider, client: GatewayClient) -> None:
    """Also one that a turn below it needs a person for; one that needs nobody stays as it is."""
    page = (ROOT / "docs" / "how-to" / "call-from-python.md").read_text()
    (example,) = [body for body in PYTHON.findall(page) if "def decide(" in body]
    names: Json = {"client": client}
    exec(compile(example, "call-from-python.md", "exec"), names)  # noqa: S102 - our own page
    asked = [call("ask_put", n=1), call("ask_put", n=2)]
    turn = client.wait(client.create_turn(**outsider.body(asked, "done"))["id"], LONG_S)
    ended = names["decide"](turn)
    assert (ended["status"], [each["content"] for each in ended["calls"]]) == ("completed", ["put 1", "put 2"])
    assert names["decide"](ended) == ended
    helped = written(outsider, [HELP], helper=([call("ask_put", n=3)], "helped"))
    asking = client.wait(client.create_turn("lead", "go", metadata=helped)["id"], LONG_S)
    assert (asking["required_actions"], [each["tool"] for each in asking["subagent_actions"]]) == ([], ["ask_put"])
    assert names["decide"](asking)["output_text"] == "done"


def test_cancelled_turn_is_waited_for_to_its_end(outsider: Outsider, client: GatewayClient) -> None:
    """Also one that was waiting for a person, which may be shown as waiting for a moment longer."""
    turn = client.wait(client.create_turn(**outsider.body([call("ask_put", n=1)], "done"))["id"], LONG_S)
    client.cancel(turn["id"])
    assert client.wait(turn["id"], LONG_S, past_approvals=True)["status"] == "cancelled"
    assert client.cancel(turn["id"])["status"] == "cancelled"


def test_fork_goes_on_from_a_step(outsider: Outsider, client: GatewayClient) -> None:
    """The same key makes one fork."""
    turn = client.create_turn(**outsider.body([call("look", n=1)], "done"), wait_s=30)
    key = f"fork-{turn['id']}"
    forks = [client.fork_turn(turn["id"], 1, idempotency_key=key, wait_s=30) for _ in range(2)]
    assert forks[0]["id"] == forks[1]["id"] != turn["id"]
    assert forks[0]["forked_from"] == {"turn_id": turn["id"], "step": 1}


def test_batch_is_made_once_and_gives_its_results(outsider: Outsider, client: GatewayClient) -> None:
    """In the order of its requests, and from any of them on, through a gateway's death."""
    requests = [{"custom_id": f"t{number}", "params": outsider.body(f"done {number}")} for number in range(5)]
    key = f"batch-{time.time()}"
    batch = client.create_batch(requests, idempotency_key=key, metadata={"day": "monday"})
    kill_gateway(outsider)
    assert client.create_batch(requests, idempotency_key=key, metadata={"day": "monday"})["id"] == batch["id"]
    assert client.wait_batch(batch["id"], LONG_S)["counts"]["completed"] == 5
    results = list(client.batch_results(batch["id"]))
    assert [(line["custom_id"], line["turn"]["output_text"]) for line in results] == [
        (f"t{number}", f"done {number}") for number in range(5)
    ]
    assert list(client.batch_results(batch["id"], after=results[2]["turn"]["id"])) == results[3:]
    assert next(client.batches())["id"] == batch["id"]
    assert client.cancel_batch(batch["id"])["status"] == "ended"
    assert client.usage(by="agent", batch_id=batch["id"])["total"]["turns"] == 5


def test_unknown_names_are_told_in_words(client: GatewayClient) -> None:
    """Each with what there is instead."""
    with pytest.raises(RequestRefused, match=r"there is no agent 'nobody'; there are: .*worker") as agent:
        client.create_turn("nobody", "Hello")
    assert agent.value.code == "unknown_agent"
    assert "worker" in agent.value.problem["agents"]
    with pytest.raises(RequestRefused, match="there is no turn 'none'"):
        client.wait("none", 0)
    with pytest.raises(RequestRefused, match="there is no turn 'none'"):
        list(client.events("none"))
    with pytest.raises(RequestRefused, match="there is no batch 'none'"):
        list(client.batch_results("none"))
    with pytest.raises(RequestRefused, match="colour: unknown field"):
        client.create_turn("worker", "Hello", colour="red")
