"""Processes that are killed and messages that are lost or forged do no harm: every turn ends, each call has one result.

Every turn is also checked for entering each body at most once an attempt, and for having each effect at most once.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

import psutil
import pytest
from celery import Celery
from kombu import Connection
from redis import Redis

from harness_worker.testing.waiting import wait_until
from harness_worker.wire import BROKER_TRANSPORT_OPTIONS
from tests.e2e.outsider import Json, Outsider, Step, call
from tests.e2e.times import contents
from tests.e2e.workers import await_back, busy_coordinator, kill, tool_children
from tests.stacks import role_pid

LOAD: tuple[Step, ...] = (
    [call("look", n=n, s=0.2) for n in range(3)],
    [call("send", n=1), call("put", n=2, s=0.1), call("look", n=3), call("send", n=4)],
    [call("look", n=5, s=0.1), call("mystery", n=6)],
    "done",
)
TURNS = 20
HANG_S = 7.5
LONG_HANG_S = 13.0


def ended(outsider: Outsider, ids: Sequence[str]) -> list[Json]:
    """The turns, which must all have completed with the model's last text."""
    turns = [outsider.end(turn_id) for turn_id in ids]
    assert {turn["output_text"] for turn in turns} == {"done"}
    assert {turn["status"] for turn in turns} == {"completed"}
    return turns


def doubts(turns: Sequence[Json]) -> list[Json]:
    """The calls that ended without their tool's result."""
    return [each for turn in turns for each in turn["calls"] if each["outcome"] != "ToolExecutionResult"]


@pytest.mark.one_database("postgres")
def test_killed_tool_processes_lose_no_turn(outsider: Outsider) -> None:
    """Ten tool processes are killed at random: reads run again, at most twice; writes never run again."""
    ids = [outsider.post(*LOAD) for _ in range(TURNS)]
    chance = random.Random(7)  # noqa: S311 - which process dies is no secret
    killed: set[int] = set()

    def kill_one() -> bool:
        children = [child for child in tool_children(outsider) if child.pid not in killed]
        if children:
            victim = chance.choice(children)
            with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                victim.kill()
            killed.add(victim.pid)
        return len(killed) >= 10

    outsider.await_entry(ids[0], "0.0")
    wait_until(kill_one, "ten tool processes to be killed", 60, interval_s=0.3)
    for each in doubts(ended(outsider, ids)):
        assert each["content"].startswith(("outcome_unknown: ", "worker_lost: ", "denied: not_run: "))
        if each["tool"] == "look" and each["outcome"] != "ToolDenied":
            assert each["content"] == "worker_lost: the process running look was lost 3 times"


def test_killed_workers_lose_no_turn(outsider: Outsider) -> None:
    """The tool worker, and later the coordinator, is killed while turns run and started again: all turns complete."""
    ids = [outsider.post(*LOAD) for _ in range(TURNS // 2)]
    outsider.await_entry(ids[1], "0.0")
    killed = {"tools": kill(outsider, "tools")}
    await_back(outsider, "tools", killed["tools"])
    killed["coordinator"] = kill(outsider, "coordinator")
    await_back(outsider, "coordinator", killed["coordinator"])
    for each in doubts(ended(outsider, ids)):
        assert each["content"].startswith(("outcome_unknown: ", "denied: not_run: "))


@pytest.mark.one_database("postgres")
def test_safe_write_whose_worker_is_killed_runs_again(outsider: Outsider) -> None:
    """Even if the loss is noticed only after its deadline: its worker's heartbeats had ended long before that."""
    pid = role_pid(outsider.stack.home, "tools")
    turn = outsider.run([call("end_worker_once")], "done")
    assert contents(turn) == ["attempt 2"]
    await_back(outsider, "tools", pid)


@pytest.mark.one_database("sqlite")
@pytest.mark.xdist_group("e2e-sqlite")
@pytest.mark.parametrize("database", ["sqlite"], indirect=True, scope="session")
def test_process_that_a_tool_damaged_leaves(outsider: Outsider) -> None:
    """It can start no more writes, and fails faster than others work: it would take most messages of the worker.

    With SQLite alone, where a start writes to a file. With Postgres only bodies do, and their failures are their own.
    """
    (pid,) = contents(outsider.run([call("spoil")], "done"))

    def is_replaced() -> bool:
        assert doubts([outsider.run([call("put", n=n) for n in range(4)], "done")]) == []
        return not psutil.pid_exists(int(pid))

    wait_until(is_replaced, "the process to be replaced", 60)


def test_flushed_redis_loses_no_turn(outsider: Outsider) -> None:
    """Messages, gates and chords vanish at once; since SQL is the only truth, each call still gets its result."""
    ids = [outsider.post(*LOAD) for _ in range(TURNS // 2)]
    outsider.await_entry(ids[1], "0.0")
    with Redis.from_url(outsider.stack.redis_url) as redis:  # pyright: ignore[reportUnknownMemberType]
        redis.execute_command("FLUSHALL")  # pyright: ignore[reportUnknownMemberType]
    assert doubts(ended(outsider, ids)) == []


@pytest.mark.one_database("postgres")
def test_redis_that_hangs_costs_no_running_write(outsider: Outsider) -> None:
    """While Redis hangs for two leases, heartbeats to the database keep a running write alive."""
    turn_id = outsider.post([call("hold_write", who="me", s=LONG_HANG_S + 1.5)], [call("look", n=2)], "done")
    outsider.await_entry(turn_id, "0.0")
    redis = psutil.Process(role_pid(outsider.stack.home, "redis"))
    redis.suspend()
    try:
        assert not threading.Event().wait(LONG_HANG_S)
    finally:
        redis.resume()
    assert doubts(ended(outsider, [turn_id])) == []


@pytest.mark.one_database("postgres")
def test_redis_that_refuses_ends_no_worker_and_costs_no_running_write(outsider: Outsider) -> None:
    """Redis refuses all writes for a while, as in a failover: no worker ends, and the write keeps its lease."""
    turn_id = outsider.post([call("hold_write", who="me", s=9.0)], [call("look", n=2)], "done")
    workers = {role: role_pid(outsider.stack.home, role) for role in ("coordinator", "tools")}
    outsider.await_entry(turn_id, "0.0")
    with Redis.from_url(outsider.stack.redis_url) as redis:  # pyright: ignore[reportUnknownMemberType]
        redis.execute_command("CONFIG SET", "min-replicas-to-write", 1)  # pyright: ignore[reportUnknownMemberType]
        try:
            assert not threading.Event().wait(HANG_S)
        finally:
            redis.execute_command("CONFIG SET", "min-replicas-to-write", 0)  # pyright: ignore[reportUnknownMemberType]
    assert doubts(ended(outsider, [turn_id])) == []
    assert workers == {role: role_pid(outsider.stack.home, role) for role in workers}


@pytest.mark.one_database("postgres")
def test_redis_that_dies_ends_no_worker_and_costs_no_running_write(outsider: Outsider) -> None:
    """The workers connect to the next Redis, and what is under way continues."""
    turn_id = outsider.post([call("put", n=1, s=4.0)], [call("look", n=2)], "done")
    workers = {role: role_pid(outsider.stack.home, role) for role in ("coordinator", "tools")}
    outsider.await_entry(turn_id, "0.0")
    kill(outsider, "redis")
    assert doubts(ended(outsider, [turn_id])) == []
    assert doubts([outsider.run([call("put", n=n) for n in range(8)], "done")]) == []
    assert workers == {role: role_pid(outsider.stack.home, role) for role in workers}


def test_turn_whose_wake_up_is_lost_ends(outsider: Outsider) -> None:
    """A turn whose wake-up message was lost is found by the reconciler."""
    with busy_coordinator(outsider):
        turn_id = outsider.post([call("put", n=1)], "done")
        wait_until(lambda: outsider.lose_messages("turns.interactive"), "the wake-up to arrive and be lost")
    assert ended(outsider, [turn_id])


def test_forged_and_repeated_messages_do_no_harm(outsider: Outsider) -> None:
    """Repeated wake-ups, wake-ups without a known turn, and broken tool messages change nothing and stop nobody."""
    with Celery("stranger", broker=outsider.broker_url, set_as_current=False) as stranger:
        stranger.conf.update(broker_transport_options=dict(BROKER_TRANSPORT_OPTIONS), task_ignore_result=True)
        turn_id = outsider.post([call("look", n=1, s=0.3), call("look", n=2)], [call("put", n=3)], "done")
        for wake in ([turn_id], [turn_id], ["no-such-turn"], [""], [None], [7], [], [turn_id, "more"], [{"a": 1}]):
            stranger.send_task("turn.advance", args=wake, queue="turns.interactive")
        good = {"turn_id": turn_id, "call_id": "9.9", "attempt": 1, "read": True, "tenant": "default", "v": 1}
        forged = [{}, {"n": 1}, good, {**good, "read": False}, {**good, "attempt": "x"}, {**good, "turn_id": None}]
        for kwargs in [*forged, {**good, "call_id": None, "read": False}, {**good, "read": "perhaps"}]:
            stranger.send_task("tool.look", kwargs=kwargs, queue="tools")
        stranger.send_task("tool.look", args=[1, 2, 3], queue="tools")
        stranger.send_task("tool.nothing", kwargs=good, queue="tools")
        stranger.send_task("turn.nothing", args=[turn_id], queue="turns.interactive")
    (turn,) = ended(outsider, [turn_id])
    assert contents(turn) == ['{"n":1}', '{"n":2}']
    assert {line["call"] for line in outsider.entries(turn_id)} == {"0.0", "0.1", "1.0"}
    stranger_free = outsider.run([call("look", n=n) for n in range(8)], "done")
    assert doubts([stranger_free]) == []


DEEP = b"[" * 50_000
GARBAGE = [
    *((body, "application/json") for body in (b"not json", b"7", b"{}", b"[[], {}]", b"[7, 7, 7]", DEEP)),
    (b"\x80\x04N.", "application/x-python-serialize"),
]
NO_ENVELOPES = (b"\x80\x04N.", b"not json", b"7", b"[]", b"{}", b'{"body": "", "properties": 7}', DEEP)
HEADERS: list[dict[str, Any]] = [
    {},
    {"task": "tool.look"},
    {"task": "tool.look", "id": "forged"},
    {"task": "turn.advance", "id": 7},
    {"task": "tool.look", "id": "forged", "timelimit": [None, None]},
    {"task": "tool.look", "id": "forged", "timelimit": 7},
]


def test_garbage_in_a_queue_stops_nobody(outsider: Outsider) -> None:
    """Whatever is no message, no task, not JSON or of another content type is dropped, and the worker continues."""
    home = outsider.stack.home
    before = [role_pid(home, role) for role in ("tools", "coordinator")]
    with Connection(outsider.broker_url) as broker, broker.Producer() as producer:
        for queue, (body, kind), headers in product(("tools", "turns.interactive"), GARBAGE, HEADERS):
            producer.publish(body, routing_key=queue, content_type=kind, content_encoding="utf-8", headers=headers)
    if outsider.broker_url == outsider.stack.redis_url:  # another broker takes nothing without an envelope
        with Redis.from_url(outsider.stack.redis_url) as redis:  # pyright: ignore[reportUnknownMemberType]
            for queue in ("tools", "turns.interactive"):
                redis.lpush(queue, *NO_ENVELOPES)
    turn = outsider.run([call("look", n=n) for n in range(8)], [call("put", n=8)], "done")
    assert doubts([turn]) == []
    assert [role_pid(home, role) for role in ("tools", "coordinator")] == before


CONTROL = (b"null", b"{}", b"not json", DEEP, b'{"body": "e30=", "properties": {}}')
NO_QUEUES: tuple[Any, ...] = (5, [1], [[1]], {"a": 1})


def test_garbage_on_the_control_channel_stops_nobody(outsider: Outsider) -> None:
    """Messages that are no commands, or name no queue, are dropped; the workers obey the next real command."""
    home = outsider.stack.home
    before = [role_pid(home, role) for role in ("tools", "coordinator")]
    with Celery("stranger", broker=outsider.broker_url, set_as_current=False) as stranger:
        for queue in NO_QUEUES:
            for command in ("add_consumer", "cancel_consumer"):
                stranger.control.broadcast(command, arguments={"queue": queue})
        if outsider.broker_url == outsider.stack.redis_url:
            with Redis.from_url(outsider.stack.redis_url) as redis:  # pyright: ignore[reportUnknownMemberType]
                for command in CONTROL:
                    redis.publish("/0.celery.pidbox", command)  # pyright: ignore[reportUnknownMemberType]
        wait_until(lambda: len(stranger.control.ping(timeout=2) or []) == 2, "both workers to answer", 60)
    assert doubts([outsider.run([call("look", n=n) for n in range(8)], "done")]) == []
    assert [role_pid(home, role) for role in ("tools", "coordinator")] == before


STAMPS: list[Json] = [{"stamped_headers": 5}, {"stamped_headers": [[]]}, {"stamped_headers": ["a"], "stamps": 5}]


@pytest.mark.parametrize("headers", STAMPS)
def test_stamps_that_celery_cannot_read_take_no_process(outsider: Outsider, headers: Json) -> None:
    """More such messages than pool processes are sent: each is dropped before it occupies a process."""
    with Connection(outsider.broker_url) as broker, broker.Producer() as producer:
        for _ in range(8):
            task = {"task": "tool.look", "id": uuid.uuid4().hex, "timelimit": [None, None], **headers}
            producer.publish([[], {}, {}], routing_key="tools", serializer="json", headers=task)
    assert doubts([outsider.run([call("look", n=n) for n in range(8)], "done")]) == []


def test_message_for_later_is_dropped(outsider: Outsider) -> None:
    """A message with a countdown is dropped: the worker would keep it, and Redis would redeliver it meanwhile."""
    with Celery("stranger", broker=outsider.broker_url, set_as_current=False) as stranger:
        stranger.conf.update(broker_transport_options=dict(BROKER_TRANSPORT_OPTIONS), task_ignore_result=True)
        stranger.send_task("turn.advance", args=["x"], queue="turns.interactive", countdown=3_600)
        stranger.send_task("tool.look", kwargs={}, queue="tools", countdown=3_600)
        assert doubts([outsider.run([call("look", n=n) for n in range(8)], "done")]) == []
        kept = wait_until(lambda: _said_by_both(stranger.control.inspect(timeout=2).scheduled()), "both to answer", 60)
    assert [each for each in kept.values() if each] == []


def _said_by_both(answers: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return answers if answers is not None and len(answers) == 2 else None


def test_message_of_a_finished_turn_changes_nothing(outsider: Outsider) -> None:
    """Wake-ups and calls of a turn that has ended are dropped."""
    turn = outsider.run([call("look", n=1)], [call("put", n=2)], "done")
    events = outsider.events(turn["id"])
    with Celery("stranger", broker=outsider.broker_url, set_as_current=False) as stranger:
        stranger.conf.update(broker_transport_options=dict(BROKER_TRANSPORT_OPTIONS), task_ignore_result=True)
        for call_id, read in (("0.0", True), ("1.0", False)):
            for attempt in (1, 2):
                kwargs = {"call_id": call_id, "attempt": attempt, "read": read, "tenant": "default", "v": 1}
                tool = "tool.look" if read else "tool.put"
                stranger.send_task(tool, kwargs={**kwargs, "turn_id": turn["id"]}, queue="tools")
        stranger.send_task("turn.advance", args=[turn["id"]], queue="turns.interactive")
    outsider.run([call("look", n=n) for n in range(8)], "done")
    assert outsider.turn(turn["id"]) == {**turn}
    assert outsider.events(turn["id"]) == events
    assert len(outsider.entries(turn["id"])) == 2
