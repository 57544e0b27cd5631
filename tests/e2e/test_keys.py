"""Two tenants of one running stack, with keys made on the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any, Final

import openai
import pytest
from openai import OpenAI

from harness_worker.testing.waiting import wait_until
from tests.e2e.outsider import Json, Outsider, add_script, call
from tests.stacks import HARNESS, ROOT

pytestmark = pytest.mark.one_database("postgres")

LONG: Final = "x" * 13_000
NEVER: Final = "019a0000-0000-7000-8000-000000000000"
Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def command(outsider: Outsider) -> Command:
    """Runs the command line for the stack's home, without a key unless the test gives one."""
    home = {"HARNESS_HOME": str(outsider.stack.home)}

    def run(*arguments: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
        ran = subprocess.run(
            [*HARNESS, *arguments],
            env={**os.environ, **home, **env},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == code, ran.stdout + ran.stderr
        assert "Traceback" not in ran.stderr
        return ran

    return run


@pytest.fixture
def key_of(command: Command) -> Callable[[str], str]:
    """Makes a key for a tenant."""
    return lambda tenant: command("keys", "create", "--tenant", tenant, "--name", "test").stdout.strip()


@pytest.fixture
def tenant_of(outsider: Outsider, key_of: Callable[[str], str]) -> Generator[Callable[[str], Outsider]]:
    """Makes a client with a key of the tenant."""
    made: list[Outsider] = []

    def make(tenant: str) -> Outsider:
        client = Outsider(outsider.stack, outsider.directory)
        client.http.headers["Authorization"] = f"Bearer {key_of(tenant)}"
        made.append(client)
        return client

    yield make
    for client in made:
        client.http.close()


def openai_of(tenant: Outsider) -> OpenAI:
    """OpenAI's client with the tenant's key."""
    key = tenant.http.headers["Authorization"].removeprefix("Bearer ")
    return OpenAI(base_url=f"{tenant.stack.gateway_url}/v1", api_key=key)


def test_tenants_of_one_stack_see_nothing_of_each_other(
    outsider: Outsider, tenant_of: Callable[[str], Outsider]
) -> None:
    """Workers work for both; about the other's turns, each is told what it is told about ids that do not exist."""
    acme, other = tenant_of("acme"), tenant_of("other")
    turn = acme.run(
        [call("context"), call("touch", keys=[LONG])],
        "done",
        session_id="shared",
        input="I am Ada.",
        webhook="http://127.0.0.1:1/",
    )
    assert json.loads(turn["calls"][0]["content"])["tenant"] == "acme"
    (artifact,) = re.findall(r"art_\w+", turn["calls"][1]["content"])
    assert acme.http.get(f"/v1/artifacts/{artifact}").text == LONG
    for stranger in (other, outsider):
        for path, never in (
            *(
                (f"/v1/turns/{{}}{part}", NEVER)
                for part in ("", "/events", "/scores", "/webhook", "?include=messages,scores")
            ),
            *(("/v1/responses/{}", NEVER), ("/v1/artifacts/{}", "art_" + "0" * (len(artifact) - 4))),
        ):
            theirs = artifact if "artifacts" in path else turn["id"]
            same(stranger, "GET", path, theirs, never)
        for path, body in (("cancel", None), ("inputs", {"message": "no"})):
            same(stranger, "POST", f"/v1/turns/{{}}/{path}", turn["id"], NEVER, body)
        same(stranger, "GET", "/v1/sessions/{}", "shared", "nobody")
        assert turn["id"] not in stranger.http.get("/v1/turns", params={"limit": 200}).text
        assert stranger.http.get("/v1/turns", params={"session_id": "shared"}).json()["data"] == []
    mine = other.run("hello", session_id="shared", input="Who am I?")
    assert "Ada" not in json.dumps(other.turn(mine["id"])["messages"])
    assert acme.http.get("/v1/sessions/shared").json()["last_turn_id"] == turn["id"]


def same(stranger: Outsider, method: str, path: str, theirs: str, never: str, body: Json | None = None) -> None:
    """Hold the answer about another's thing against that about one that never was."""
    first, second = (stranger.http.request(method, path.format(each), json=body) for each in (theirs, never))
    assert (first.status_code, first.text.replace(theirs, "ID")) == (404, second.text.replace(never, "ID")), path
    assert second.status_code == 404


def test_openai_client_with_a_key_is_its_tenant(tenant_of: Callable[[str], Outsider]) -> None:
    """Conversations, streams and cancels belong to the key's tenant; other tenants' responses do not exist for it."""
    acme, other = tenant_of("acme"), tenant_of("other")
    says = {"script": add_script(acme.directory, ["Hello Ada."])}
    asked: Any = [{"role": "user", "content": "I am Ada."}]
    with openai_of(acme) as client, openai_of(other) as stranger:
        assert {model.id for model in stranger.models.list()} == {model.id for model in client.models.list()}
        first = client.responses.create(model="worker", input="I am Ada.", metadata=says)
        second = client.responses.create(model="worker", input="x", metadata=says, previous_response_id=first.id)
        assert second.output_text == "Hello Ada."
        *_, last = client.responses.create(model="worker", input="x", metadata=says, stream=True)
        assert last.type == "response.completed"
        completion = client.chat.completions.create(model="worker", messages=asked, metadata=says)
        assert completion.choices[0].message.content == "Hello Ada."
        for response_id in (second.id, completion.id):
            assert client.responses.retrieve(response_id).output_text == "Hello Ada."
            with pytest.raises(openai.NotFoundError):
                stranger.responses.retrieve(response_id)
            with pytest.raises(openai.NotFoundError):
                stranger.responses.cancel(response_id)
            with pytest.raises(openai.NotFoundError):
                stranger.responses.create(model="worker", input="x", previous_response_id=response_id)
    with (
        OpenAI(base_url=f"{acme.stack.gateway_url}/v1", api_key="hk_wrong") as nobody,
        pytest.raises(openai.AuthenticationError, match="unknown, expired or revoked"),
    ):
        nobody.models.list()


def test_client_at_work_is_refused_once_its_key_is_revoked(
    command: Command, tenant_of: Callable[[str], Outsider]
) -> None:
    """The next request is refused in a way that is not retried; turns posted before run to their end."""
    revoked, kept = tenant_of("working"), tenant_of("working")
    posted: list[str] = []
    some = Event()

    def work() -> str:
        says = {"script": add_script(revoked.directory, [[call("look", n=1)], "done"])}
        with openai_of(revoked) as client:
            while True:
                try:
                    asked = client.responses.create(model="worker", input="go", metadata=says, background=True)
                except openai.AuthenticationError as refused:
                    return str(refused)
                posted.append(asked.id)
                if len(posted) > 2:
                    some.set()

    keys = json.loads(command("keys", "list", "--tenant", "working", "--json").stdout)["data"]
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        assert some.wait(60)
        command("keys", "revoke", keys[0]["id"])
        assert "unknown, expired or revoked" in working.result(60)
    assert {kept.end(turn_id)["status"] for turn_id in posted} == {"completed"}
    states = [
        each["state"] for each in json.loads(command("keys", "list", "--tenant", "working", "--json").stdout)["data"]
    ]
    assert states == ["revoked", "active"]


def test_command_line_is_the_tenant_of_its_key(
    outsider: Outsider,
    command: Command,
    key_of: Callable[[str], str],
    tenant_of: Callable[[str], Outsider],
    tmp_path: Path,
) -> None:
    """Commands reach what the key's tenant may see; a wrong key is explained, but never shown."""
    commander = tenant_of("commander")
    key = key_of("commander")
    script = add_script(outsider.directory, ["I see."])
    ran = command("run", "go", "--agent", "worker", "--metadata", f"script={script}", HARNESS_API_KEY=f"{key}\n")
    assert ran.stdout == "I see.\n"
    (turn_id,) = command("turns", "list", "-q", HARNESS_API_KEY=key).stdout.split()
    assert commander.turn(turn_id)["input"] == "go"
    assert turn_id not in command("turns", "list", "-q", "--limit", "200").stdout
    case = tmp_path / "cases.jsonl"
    case.write_text(json.dumps({"id": "one", "input": "go", "metadata": {"script": script}}))
    command("eval", str(case), "--agent", "worker", "--repeats", "2", HARNESS_API_KEY=key)
    assert len(command("turns", "list", "-q", HARNESS_API_KEY=key).stdout.split()) == 3
    for given, code, said in (
        ("hk_" + "w" * 43, 1, "refuses the API key"),
        ("hk_wr ong", 2, "HARNESS_API_KEY=***: must be visible characters"),
        ("hk_wröng", 2, "HARNESS_API_KEY=***: must be visible characters"),
    ):
        refused = command("turns", "list", code=code, HARNESS_API_KEY=given)
        assert said in refused.stderr
        assert given not in refused.stdout + refused.stderr


def test_doctor_says_whether_the_gateway_takes_the_key(command: Command, key_of: Callable[[str], str]) -> None:
    """``harness doctor`` says whether the gateway accepts the key; without a key it says nothing about keys."""

    def gateway(code: int, **env: str) -> list[tuple[str, str]]:
        checks = json.loads(command("doctor", "--json", code=code, **env).stdout)["checks"]
        return [(each["state"], each["said"]) for each in checks if each["name"] == "gateway"]

    key = key_of("examined")
    assert gateway(0, HARNESS_API_KEY=key)[1:] == [("ok", "takes the key in HARNESS_API_KEY")]
    assert gateway(1, HARNESS_API_KEY=key[:-4] + "nono")[1:] == [("wrong", "refuses the key in HARNESS_API_KEY")]
    assert len(gateway(0)) == 1


def test_key_is_kept_and_logged_nowhere(outsider: Outsider, tenant_of: Callable[[str], Outsider]) -> None:
    """No file that the stack writes while a turn runs contains the key."""
    acme = tenant_of("acme")
    acme.run([call("look", n=1)], "done")
    secret = acme.http.headers["Authorization"].removeprefix("Bearer hk_").encode()
    home = outsider.directory / "home"
    logs = [file for file in home.rglob("*") if file.is_file()]
    wait_until(lambda: any(b"/v1/turns" in file.read_bytes() for file in (home / "logs").iterdir()), "the log")
    assert [file for file in logs if file.exists() and secret in file.read_bytes()] == []
