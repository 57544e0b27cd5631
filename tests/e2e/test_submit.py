"""Turns submitted by a plain Celery producer, which knows only the broker and the name of the task."""

from __future__ import annotations

import re
import uuid
from collections.abc import Generator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chain
from kombu import Connection

from harness_worker.entrypoints.stack import open_stack
from harness_worker.testing.waiting import wait_until
from tests.apps.e2e.journal import DIRECTORY_VARIABLE, scripts_file
from tests.e2e.conftest import APP
from tests.e2e.outsider import Json, Outsider, Step, add_script, call
from tests.e2e.workers import kill
from tests.stacks import ROOT

pytestmark = pytest.mark.one_database("postgres")

STEPS: tuple[Step, ...] = ([call("look", n=1), call("put", n=2)], "done")
REPLY_S = 60
PATIENCE_S = 15.0


@pytest.fixture
def producer(outsider: Outsider) -> Generator[Celery]:
    """Another application, whose results are kept in the harness's Redis."""
    with Celery("shop", broker=outsider.broker_url, backend=outsider.stack.redis_url, set_as_current=False) as app:
        yield app
        backend: Any = app.backend
        backend.result_consumer.stop()  # Celery leaves what it listens with to the garbage collector
        backend.client.close()


def submit(producer: Celery, asked: Json, *, queue: str = "turns.interactive", task_id: str | None = None) -> Any:  # noqa: ANN401 - Celery's result
    """Send a message that asks for a turn."""
    return producer.send_task("turn.submit", kwargs=asked, queue=queue, task_id=task_id)


def listed(outsider: Outsider, session_id: str) -> list[Json]:
    """The turns of a session."""
    return outsider.http.get("/v1/turns", params={"session_id": session_id}).json()["data"]


@pytest.mark.parametrize("queue", ["turns.interactive", "turns.batch"])
def test_submitted_turn_has_its_tasks_id(outsider: Outsider, producer: Celery, queue: str) -> None:
    """The task's result says that the turn is stored; from then on it is a turn like any other."""
    script = add_script(outsider.directory, STEPS)
    asked: Json = {"agent": "worker", "input": "go", "metadata": {"script": script}, "budget": {"max_steps": 999}}
    sent = submit(producer, asked, queue=queue)
    assert sent.get(timeout=REPLY_S) == sent.id
    turn = outsider.end(sent.id)
    assert (turn["status"], turn["output_text"], turn["session_id"]) == ("completed", "done", sent.id)
    assert [each["outcome"] for each in turn["calls"]] == ["ToolExecutionResult"] * 2
    assert turn["budget"]["max_steps"] == 20, "the agent's cap"


def test_task_sent_again_is_the_same_turn(outsider: Outsider, producer: Celery) -> None:
    """A producer that does not know whether a message arrived may send it again under the same id."""
    script = add_script(outsider.directory, STEPS)
    session, name = uuid.uuid4().hex, f"job-{uuid.uuid4().hex}"
    asked = {"agent": "worker", "input": "go", "metadata": {"script": script}, "session_id": session}
    for sent in [submit(producer, asked, task_id=name) for _ in range(10)]:
        assert sent.get(timeout=REPLY_S) == name
    outsider.end(name)
    assert [turn["id"] for turn in listed(outsider, session)] == [name]
    assert len(outsider.entries(name)) == 2


def test_submitted_turns_of_a_session_run_in_order(outsider: Outsider, producer: Celery) -> None:
    """Submitted turns of a session run in order, just as posted ones do."""
    script = add_script(outsider.directory, STEPS)
    session = uuid.uuid4().hex
    asked = {"agent": "worker", "metadata": {"script": script}, "session_id": session}
    ids = [submit(producer, {**asked, "input": str(n)}).get(timeout=REPLY_S) for n in range(3)]
    turns = [outsider.end(turn_id) for turn_id in ids]
    ended = [turn["finished_at"] for turn in turns]
    assert ended == sorted(ended)
    assert [turn["id"] for turn in reversed(listed(outsider, session))] == ids


def log_of(outsider: Outsider) -> str:
    """The logs of the stack's processes."""
    return (outsider.stack.home / "logs" / "up.log").read_text()


def stands(producer: Celery, task_id: str) -> tuple[str, object]:
    """A task's state and result, as the result backend has them."""
    backend: Any = producer.backend
    kept = backend.get_task_meta(task_id, cache=False)
    return kept["status"], kept["result"]


REFUSED: list[tuple[Json, str]] = [
    ({}, "agent is missing: give agent and input, by name"),
    ({"agent": "nobody", "input": "go"}, "there is no agent 'nobody'; GET /v1/agents lists those there are"),
    ({"agent": "worker"}, "input is missing: give agent and input, by name"),
    ({"agent": "worker", "input": "go", "inputs": 1}, "there is no inputs: give agent, input"),
    ({"agent": "worker", "input": "a\0b"}, "input must not contain the character U+0000"),
    ({"agent": "worker", "input": "go", "budget": [1]}, "budget must be a dict of limits, not list"),
    (
        {"agent": "worker", "input": "go", "budget": {"max_dollars": 10**400}},
        "budget['max_dollars'] is too large a number",
    ),
    (
        {"agent": "worker", "input": "go", "budget": {"max_tokens": 10**400}},
        "budget['max_tokens'] is too large a number",
    ),
    ({"agent": "worker", "input": "go", "metadata": {"a": 1}}, "metadata['a'] must be a string, not int"),
    ({"agent": "worker", "input": "go", "tenant": "\0"}, "tenant '\\x00': give 1 to 255 visible characters"),
]


@pytest.mark.parametrize(("asked", "why"), REFUSED, ids=[why for _, why in REFUSED])
def test_what_is_wrong_with_a_turn_is_its_tasks_failure(
    outsider: Outsider, producer: Celery, asked: Json, why: str
) -> None:
    """The task fails with what to correct, and no turn is stored."""
    sent = submit(producer, asked)
    with pytest.raises(Exception, match=re.escape(why)) as refused:
        sent.get(timeout=REPLY_S)
    assert type(refused.value).__name__ == "ConfigError"
    assert outsider.http.get(f"/v1/turns/{sent.id}").status_code == 404


def test_ids_and_arguments_that_cannot_be_are_refused(outsider: Outsider, producer: Celery) -> None:
    """Refused are ids that a URL's path cannot hold, ids of other turns, and arguments without names."""
    turn_id = outsider.run(*STEPS)["id"]
    script = add_script(outsider.directory, STEPS)
    asked = {"agent": "worker", "input": "other", "metadata": {"script": script}}
    for sent, why in [
        (submit(producer, asked, task_id="../x"), "the task's id becomes the turn's"),
        (submit(producer, asked, task_id="x" * 65), "the task's id becomes the turn's"),
        (submit(producer, asked, task_id=turn_id), f"{turn_id} is the id of another turn already"),
        (producer.send_task("turn.submit", args=["worker", "go"], queue="turns.batch"), "no positional arguments"),
    ]:
        with pytest.raises(Exception, match=why):
            sent.get(timeout=REPLY_S)


def test_id_is_one_jobs_for_good(outsider: Outsider, producer: Celery) -> None:
    """A refused message leaves its id free for a corrected one; of two jobs with one id, the first one has it."""
    asked = {"agent": "worker", "input": "go", "metadata": {"script": add_script(outsider.directory, STEPS)}}
    name = f"job-{uuid.uuid4().hex}"
    refused = submit(producer, {**asked, "agent": "nobody"}, task_id=name)
    with pytest.raises(Exception, match="there is no agent 'nobody'"):
        refused.get(timeout=REPLY_S)
    submit(producer, asked, task_id=name)
    wait_until(lambda: stands(producer, name) == ("SUCCESS", name), "the turn to be stored", REPLY_S)
    submit(producer, {**asked, "input": "another job", "tenant": "acme"}, task_id=name)
    wait_until(lambda: f"{name} is the id of another turn already" in log_of(outsider), "a word in the log", REPLY_S)
    assert stands(producer, name) == ("SUCCESS", name), "what the first one's producer may still read"
    assert outsider.end(name)["input"] == "go"


def test_message_needs_no_more_than_its_protocol_wants(outsider: Outsider) -> None:
    """A producer that is not Celery may leave out optional parts of a message, such as time limits."""
    script, name = add_script(outsider.directory, STEPS), f"job-{uuid.uuid4().hex}"
    asked = {"agent": "worker", "input": "go", "metadata": {"script": script}}
    with Connection(outsider.broker_url) as broker, broker.Producer() as sender:
        said: Any = [[], asked, {}]
        headers = {"task": "turn.submit", "id": name}
        sender.publish(said, routing_key="turns.interactive", serializer="json", headers=headers)
    _wait_until_stored(outsider, name)
    assert outsider.end(name)["status"] == "completed"


def test_message_of_the_old_protocol_is_refused_with_what_to_mend(outsider: Outsider, producer: Celery) -> None:
    """The worker's log says what the producer must set, and no turn is stored."""
    producer.conf.task_protocol = 1
    sent = submit(producer, {"agent": "worker", "input": "go"})
    wait_until(
        lambda: "a producer of Celery's must have task_protocol=2" in log_of(outsider), "a word in the log", REPLY_S
    )
    assert outsider.http.get(f"/v1/turns/{sent.id}").status_code == 404


def test_what_the_user_said_reaches_no_event_of_celerys(producer: Celery) -> None:
    """Flower shows a submitted turn by its id, whatever the producer's message says of its arguments."""
    secret = uuid.uuid4().hex
    seen: list[Json] = []
    mine: list[Json] = []
    with producer.connection_for_read() as connection:
        receiver = producer.events.Receiver(connection, handlers={"*": seen.append})
        with closing(receiver.consume(limit=None, timeout=REPLY_S, wakeup=True)) as events:
            next(events)  # now nothing is missed
            sent = submit(producer, {"agent": "worker", "input": secret, "metadata": {"a": 7}})
            for _ in events:
                mine = [event for event in seen if event.get("uuid") == sent.id]
                if {"task-received", "task-failed"} <= {event["type"] for event in mine}:
                    break
    assert secret not in repr(mine)
    assert repr({"turn": sent.id}) in repr(mine)


@pytest.mark.acceptance
def test_producer_that_sends_again_loses_none_when_a_coordinator_is_killed(tmp_path: Path) -> None:
    """Messages that it held are redelivered, or sent again by the producer: each becomes one turn."""
    scripts_file(tmp_path).touch()
    env = {DIRECTORY_VARIABLE: str(tmp_path), "HARNESS_VISIBILITY_TIMEOUT_S": "4"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
        with open_stack(home=tmp_path / "home", app=APP, coordinators=4, tools=2, env=env) as stack:
            outsider = Outsider(stack, tmp_path)
            script = add_script(tmp_path, STEPS)
            asked = {"agent": "worker", "input": "go", "metadata": {"script": script}}
            with Celery("shop", broker=stack.redis_url, set_as_current=False) as producer:
                ids = [submit(producer, asked).id for _ in range(40)]
                kill(outsider, "coordinator")
                for turn_id in ids:
                    _send_until_stored(outsider, producer, asked, turn_id)
            assert {outsider.end(turn_id)["output_text"] for turn_id in ids} == {"done"}
            assert {len(outsider.entries(turn_id)) for turn_id in ids} == {2}
            outsider.http.close()


def _send_until_stored(outsider: Outsider, producer: Celery, asked: Json, turn_id: str) -> None:
    for _ in range(3):
        with suppress(TimeoutError):
            _wait_until_stored(outsider, turn_id)
            return
        submit(producer, asked, task_id=turn_id)
    _wait_until_stored(outsider, turn_id)


def _wait_until_stored(outsider: Outsider, turn_id: str) -> None:
    def is_stored() -> bool:
        return outsider.http.get(f"/v1/turns/{turn_id}").status_code == 200

    wait_until(is_stored, f"{turn_id} to be stored", PATIENCE_S)


def test_message_that_nobody_can_take_shows_nobody_what_it_says(outsider: Outsider, producer: Celery) -> None:
    """No text of a message is logged if its queue, task, expiry, id or arguments are wrong."""
    secret = uuid.uuid4().hex
    asked = {"agent": "worker", "input": secret}
    submit(producer, asked, queue="tools")
    submit(producer, {**asked, "self": 1})
    producer.send_task("turn.nothing", kwargs=asked, queue="turns.interactive")
    with Connection(outsider.broker_url) as broker, broker.Producer() as sender:
        for odd in ({"expires": "zzz"}, {"expires": 5}, {"id": 7}):
            headers = {"task": "turn.submit", "id": uuid.uuid4().hex, "timelimit": [None, None], **odd}
            said: Any = [[], asked, {}]
            sender.publish(said, routing_key="turns.interactive", serializer="json", headers=headers)
    assert outsider.run([call("look", n=n) for n in range(8)], "done")["output_text"] == "done"
    wait_until(lambda: "withheld: it may tell what somebody said" in log_of(outsider), "a word in the log", REPLY_S)
    assert secret not in log_of(outsider)


def test_log_of_workers_names_the_turn_and_the_call(outsider: Outsider, producer: Celery) -> None:
    """The log of each message has the turn's id, and the call's, but no words of users."""
    secret = uuid.uuid4().hex
    submitted = str(submit(producer, {"agent": "worker", "input": secret}).id)
    _wait_until_stored(outsider, submitted)
    turn = outsider.run([call("look", n=1)], "done")

    def received(task: str, words: str) -> list[str]:
        lines = [line for line in log_of(outsider).splitlines() if f"Task {task}[" in line and " received: " in line]
        return [line for line in lines if words in line]

    wait_until(lambda: received("turn.submit", f"{{'turn': '{submitted}'}}"), "the message of the turn", REPLY_S)
    wait_until(lambda: received("turn.advance", turn["id"]), "the wake-up of the other turn", REPLY_S)
    called = wait_until(lambda: received("tool.look", turn["id"]), "its call, of which there may be copies", REPLY_S)
    assert ["'call': '0.0'" in line for line in called] == [True] * len(called)
    assert secret not in log_of(outsider)


def test_messages_that_cannot_be_ended_hold_no_place(outsider: Outsider, producer: Celery) -> None:
    """More messages than the coordinator takes at once fail in ways that Celery cannot report; later ones still run."""
    callback = producer.signature("shop.failed", queue="shop", serializer="msgpack")
    asked = {"agent": "nobody", "input": "go"}
    odd: Any = {"a": 1}
    for _ in range(12):
        producer.send_task("turn.submit", kwargs=asked, queue="turns.interactive", link_error=callback)
        producer.send_task("turn.submit", kwargs=asked, queue="turns.interactive", shadow=odd)
    script = add_script(outsider.directory, STEPS)
    sent = submit(producer, {"agent": "worker", "input": "go", "metadata": {"script": script}})
    assert sent.get(timeout=REPLY_S) == sent.id
    assert outsider.end(sent.id)["status"] == "completed"


def test_callback_that_is_a_chain_goes_to_the_producers_queue(outsider: Outsider, producer: Celery) -> None:
    """At the workers' own broker, not at that of Celery's current app."""
    queue = f"shop-{uuid.uuid4().hex}"
    first, second = (producer.signature(name, queue=queue, immutable=True) for name in ("shop.told", "shop.filed"))
    asked = {"agent": "worker", "input": "go", "metadata": {"script": add_script(outsider.directory, STEPS)}}
    sent = producer.send_task("turn.submit", kwargs=asked, queue="turns.interactive", link=chain(first, second))
    assert sent.get(timeout=REPLY_S) == sent.id
    with producer.connection_for_write() as connection, closing(connection.SimpleQueue(queue)) as messages:
        told = messages.get(timeout=REPLY_S)
        told.ack()
    following = [each["task"] for each in told.payload[2]["chain"]]
    assert (told.headers["task"], following) == ("shop.told", ["shop.filed"])


def test_message_that_cannot_be_unpacked_is_dropped_without_its_words(outsider: Outsider, producer: Celery) -> None:
    """A message with an unknown compression is dropped, and its text is not logged."""
    word = uuid.uuid4().hex
    with producer.connection_for_write() as connection, closing(connection.SimpleQueue("turns.interactive")) as queue:
        headers = {"task": "turn.submit", "id": word[:8], "kwargsrepr": word, "compression": "application/unknown"}
        queue.put([[], {"agent": "worker", "input": word}, {}], headers=headers)
    wait_until(lambda: "message dropped, it is not one of ours: KeyError" in log_of(outsider), "it to be dropped", 30)
    assert word not in log_of(outsider)


def test_task_is_shown_by_its_own_name(outsider: Outsider, producer: Celery) -> None:
    """Events show the task's registered name, not one that the producer gives, which may hold a user's words."""
    word = uuid.uuid4().hex
    script = add_script(outsider.directory, STEPS)
    asked = {"agent": "worker", "input": "go", "metadata": {"script": script}}
    sent: Any = producer.send_task("turn.submit", kwargs=asked, queue="turns.interactive", shadow=word)
    assert sent.get(timeout=REPLY_S) == sent.id
    wait_until(lambda: f"Task turn.submit[{sent.id}] succeeded" in log_of(outsider), "the log to tell of it", 30)
    assert word not in log_of(outsider)
