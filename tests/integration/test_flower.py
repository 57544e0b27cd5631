"""Flower beside a running stack: what it shows, what it does not show, and that it is restarted."""

from __future__ import annotations

import ast
import os
import signal
import socket
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import httpx2
import psutil
import pytest
from celery import Celery

from harness_worker.config import Settings, load_settings
from harness_worker.demo.conversations import CONVERSATIONS
from harness_worker.entrypoints.cli.ready_screen import ready_screen
from harness_worker.entrypoints.flower_access import FlowerAccess, given_access
from harness_worker.entrypoints.stack import StackInfo, running_stack
from harness_worker.errors import ConfigError
from harness_worker.testing.waiting import wait_until
from harness_worker.wire import Priority, turn_queue
from tests.integration.flower_kit import SHOP, await_listening, flower, tasks_of
from tests.stacks import harness_up, none_runs, role_pid, run_here

TURNS: Final = turn_queue(Priority.INTERACTIVE)
QUESTION: Final = CONVERSATIONS[0]

pytestmark = pytest.mark.xdist_group("flower")  # one stack for all of them


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Generator[StackInfo]:
    """The shop's stack with Flower; each test must leave it healthy."""
    home = tmp_path_factory.mktemp("flower") / "home"
    with harness_up(home, "--app", SHOP, "--flower", "--flower-port", "0") as up:
        await_listening(up.info())
        yield up.info()
        children = up.children()
        up.process.terminate()
        assert up.process.wait(60) == 0, up.log.read_text()
        assert none_runs(children)


@pytest.fixture
def turn(stack: StackInfo) -> Mapping[str, Any]:
    """An ended turn with reads and writes, a new one for each test, because a restarted Flower forgets turns."""
    body = {"agent": "support", "input": QUESTION.question, "metadata": {"script": QUESTION.script}}
    posted = httpx2.post(
        f"{stack.gateway_url}/v1/turns", json=body, headers={"Prefer": "wait=30"}, timeout=40, trust_env=False
    )
    done = posted.json()
    assert done["status"] == "completed", done
    return done


def test_flower_lists_both_workers(stack: StackInfo) -> None:
    """The list has the stack's coordinator and its tool worker with their queues."""
    workers = flower(stack, "/api/workers").json()
    queues = {name: {queue["name"] for queue in said["active_queues"]} for name, said in workers.items()}
    host = socket.gethostname()
    assert queues == {
        f"coordinator@{host}": {"turns.interactive", "turns.batch"},
        f"tools@{host}": {"tools"},
    }


def test_flower_tells_how_long_the_queues_are(stack: StackInfo) -> None:
    """The broker's page and its JSON list each queue with the number of waiting messages."""
    told = flower(stack, "/api/queues/length").json()["active_queues"]
    assert {queue["name"] for queue in told} == {"turns.interactive", "turns.batch", "tools"}
    assert all(isinstance(queue["messages"], int) for queue in told)
    page = flower(stack, "/broker")
    assert page.status_code == 200
    assert all(queue["name"] in page.text for queue in told)


def test_flower_shows_a_turns_tasks_by_name_with_its_id(stack: StackInfo, turn: Mapping[str, Any]) -> None:
    """Every wake-up and call can be found by the turn's id, and a call also by its own id."""
    tasks = tasks_of(stack, turn)
    assert {task["name"] for task in tasks} == {"turn.advance", *(f"tool.{call['tool']}" for call in turn["calls"])}
    assert all(turn["id"] in task["args"] for task in tasks if task["name"] == "turn.advance")
    for call in turn["calls"]:
        shown = {(task["name"], task["kwargs"]) for task in tasks if f"'call': '{call['call_id']}'" in task["kwargs"]}
        told = {"turn": turn["id"], "tenant": "default", "call": call["call_id"], "attempt": 1}
        assert shown == {(f"tool.{call['tool']}", str(told))}


def test_flower_pages_name_turn_and_call(stack: StackInfo, turn: Mapping[str, Any]) -> None:
    """The table of tasks shows each task's turn, and a call's id and attempt."""
    tasks_of(stack, turn)
    query = {"draw": 1, "start": 0, "length": 100, "search[value]": "", "order[0][column]": 0, "order[0][dir]": "asc"}
    columns = {"columns[0][data]": "name"}
    assert stack.flower_url is not None
    answer = httpx2.get(f"{stack.flower_url}/tasks/datatable", params={**query, **columns}, trust_env=False, timeout=20)
    rows = {(row["name"], row["args"], row["kwargs"]) for row in answer.json()["data"]}
    mine = f"turn {turn['id']}"
    calls = {(f"tool.{call['tool']}", mine, f"call {call['call_id']}, attempt 1") for call in turn["calls"]}
    assert rows >= {*calls, ("turn.advance", mine, "")}


def test_flower_shows_neither_arguments_nor_texts(stack: StackInfo, turn: Mapping[str, Any]) -> None:
    """Nothing that a user, a model or a tool said appears anywhere."""
    tasks_of(stack, turn)
    pages = "".join(flower(stack, path).text for path in ("/api/tasks", "/api/workers", "/metrics", "/tasks"))
    values = [str(value) for call in turn["calls"] for value in call["arguments"].values() if len(str(value)) > 6]
    texts = [turn["input"], turn["output_text"], *(call["content"] for call in turn["calls"])]
    assert len(values) >= 2
    assert [text for text in (*values, *texts) if text in pages or text[:24] in pages] == []


def test_flower_does_not_show_what_a_producer_tells_of_its_messages(stack: StackInfo) -> None:
    """With ``task_send_sent_event`` a producer publishes its messages' arguments, which hold a user's text."""
    with Celery(broker=stack.redis_url, set_as_current=False) as producer:
        producer.conf.task_send_sent_event = True
        kwargs = {"agent": "support", "input": "my card is 4111"}
        sent = producer.send_task("turn.submit", kwargs=kwargs, queue="nobody takes it", ignore_result=True)
        producer.send_task("turn.submit", kwargs={**kwargs, "agent": "none"}, queue=TURNS, task_id="refused")
    told = wait_until(lambda: _told(stack, "refused"), "Flower to show the message that was sent behind it", 60)
    assert told == {"turn": "refused"}
    shown = flower(stack, "/api/tasks").text
    assert "4111" not in shown
    assert sent.id not in shown


def _told(stack: StackInfo, task_id: str) -> dict[str, str] | None:
    """What Flower shows of the arguments of a task that has failed."""
    task = flower(stack, "/api/tasks").json().get(task_id, {})
    return ast.literal_eval(task["kwargs"]) if task.get("state") == "FAILURE" else None


def test_flower_asks_for_its_password(stack: StackInfo) -> None:
    """Without the password, or with another one, nothing is shown."""
    parts = urlsplit(str(stack.flower_url))
    bare = f"http://{parts.hostname}:{parts.port}"
    for path in ("/", "/api/workers", "/api/tasks", "/tasks"):
        assert httpx2.get(bare + path, trust_env=False, timeout=30).status_code == 401
        assert httpx2.get(bare + path, auth=("harness", "guess"), trust_env=False, timeout=30).status_code == 401
    assert parts.hostname == "127.0.0.1"
    assert len(unquote(parts.password or "")) >= 20


@pytest.mark.parametrize("path", ["/api/worker/shutdown/{worker}", "/api/task/send-task/turn.advance"])
def test_flower_changes_nothing(stack: StackInfo, path: str) -> None:
    """Flower cannot stop workers or send tasks."""
    worker = next(iter(flower(stack, "/api/workers").json()))
    url = f"{stack.flower_url}{path.format(worker=worker)}"
    assert httpx2.post(url, json={"args": []}, trust_env=False, timeout=30).status_code == 403


def test_flower_password_is_in_no_command_line(stack: StackInfo) -> None:
    """The password does not appear in a list of processes."""
    password = urlsplit(str(stack.flower_url)).password or ""
    processes = psutil.Process(stack.pid).children(recursive=True)
    assert password
    assert not [process for process in processes if password in " ".join(process.cmdline())]


def test_killed_flower_is_started_again(stack: StackInfo) -> None:
    """It comes back at the same address, with the same password."""
    killed = role_pid(stack.home, "flower")
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: role_pid(stack.home, "flower") not in (0, killed), "flower to come back", 60)
    wait_until((stack.home / "run" / "flower.ready").exists, "flower to answer again", 60)
    await_listening(stack)
    assert len(flower(stack, "/api/workers").json()) == 2


def test_restarted_worker_keeps_its_name(stack: StackInfo) -> None:
    """A restarted worker is the same row in the list, not another one."""
    killed, names = role_pid(stack.home, "coordinator"), set(_pids(stack))
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: role_pid(stack.home, "coordinator") not in (0, killed), "the worker to come back", 60)
    name = f"coordinator@{socket.gethostname()}"
    wait_until(lambda: _pids(stack).get(name) == role_pid(stack.home, "coordinator"), "Flower to see it", 60)
    assert set(_pids(stack)) == names


def _pids(stack: StackInfo) -> dict[str, int]:
    """The pids of the workers that Flower lists, by name."""
    return {name: said["stats"]["pid"] for name, said in flower(stack, "/api/workers?refresh=1").json().items()}


def test_stack_tells_where_flower_is(stack: StackInfo) -> None:
    """Commands find it by the home; the password is shown only by the ``up`` that made it."""
    found = running_stack(stack.home)
    assert found is not None
    assert found.flower_url == stack.flower_url
    password = urlsplit(str(stack.flower_url)).password or ""
    assert password not in ready_screen(stack)
    assert f"user harness  password {password}" in ready_screen(stack, tells_flower_password=True)


@pytest.mark.parametrize("value", ["hidden", ":hidden", "user:", "user:hiddén"])
def test_wrong_credentials_are_refused_without_repeating_them(tmp_path: Path, value: str) -> None:
    """A password that cannot be used is wrong usage; the message names the variable, not the value."""
    refused = run_here("flower", "--port", "0", "--home", str(tmp_path), env={"HARNESS_FLOWER_AUTH": value})
    assert refused.returncode == 2
    assert "HARNESS_FLOWER_AUTH" in refused.stderr
    assert "hidd" not in refused.stderr
    assert "Traceback" not in refused.stderr


def test_given_credentials_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable's password is used, and the settings do not show it."""
    monkeypatch.setenv("HARNESS_FLOWER_AUTH", "ops:a:b/c")
    settings: Settings = load_settings()
    access = given_access(settings)
    assert access is not None
    assert access == FlowerAccess(user="ops", password="a:b/c")  # noqa: S106 - not a secret
    assert access.url("127.0.0.1", 5555) == "http://ops:a%3Ab%2Fc@127.0.0.1:5555"
    assert "a:b/c" not in f"{settings!r}{access!r}"


def test_flower_without_password_is_refused(tmp_path: Path) -> None:
    """Flower is never served without a password."""
    refused = run_here("flower", "--port", "0", "--home", str(tmp_path))
    assert refused.returncode == 2
    assert "HARNESS_FLOWER_AUTH is not set" in refused.stderr
    with pytest.raises(ConfigError):
        given_access(Settings(flower_auth="open"))  # pyright: ignore[reportArgumentType]
