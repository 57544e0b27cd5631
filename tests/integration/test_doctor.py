"""``harness doctor`` on a real stack, and on parts that are missing or configured wrongly."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from shlex import quote
from typing import Any, Final
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest
import redis
from celery import Celery
from sqlalchemy import make_url

from harness_worker.adapters.sql.migrate import upgrade
from harness_worker.entrypoints.stack import StackInfo, open_stack
from harness_worker.entrypoints.worker.roles import Role
from harness_worker.testing.postgres import PostgresServer
from harness_worker.testing.services import valkey_service
from harness_worker.testing.waiting import wait_until
from tests.stacks import HARNESS, ROOT, run_here

APP: Final = "tests.apps.trivial:registry"
Checks = dict[str, list[dict[str, Any]]]
pytestmark = pytest.mark.xdist_group("doctor")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Generator[StackInfo]:
    """One stack for the whole module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        with open_stack(home=tmp_path_factory.mktemp("doctor"), app=APP, tools=1) as info:
            yield info


def examined(stack: StackInfo, code: int, **env: str) -> Checks:
    """The doctor's findings, by name."""
    ran = run_here("doctor", "--home", str(stack.home), "--json", env=env)
    assert ran.returncode == code, ran.stdout + ran.stderr
    document = json.loads(ran.stdout)
    assert document["ok"] is (code == 0)
    found: Checks = {}
    for check in document["checks"]:
        assert bool(check["mend"]) is (check["state"] != "ok"), check
        found.setdefault(check["name"], []).append(check)
    return found


@contextmanager
def tool_worker(stack: StackInfo, *options: str) -> Generator[None]:
    """A tool worker of the stack, once it takes messages."""
    ready = stack.home / "ready"
    command = [*HARNESS, "worker", "--role", "tools", "--app", APP, "--concurrency", "1", "--ready-file", str(ready)]
    log = stack.home / "worker.log"
    with log.open("wb") as sink:
        command += ["--home", str(stack.home), *options]
        process = subprocess.Popen(command, cwd=ROOT, stdout=sink, stderr=sink)
    try:
        wait_until(ready.exists, "the worker to be ready", 60)
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


def states(checks: Checks, name: str) -> list[str]:
    """The results of the checks with one name."""
    return [check["state"] for check in checks[name]]


def test_doctor_finds_a_running_stack_well(stack: StackInfo) -> None:
    """Every part is checked and nothing is wrong; lines fit 80 columns and have no escape codes."""
    ran = run_here("doctor", "--home", str(stack.home), env={"COLUMNS": "80"})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = ran.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in ran.stdout
    named = [line.split()[1] for line in lines if not line.startswith(" ")]
    assert list(dict.fromkeys(named)) == [
        *("settings", "gateway", "redis", "database", "tables", "clocks", "workers", "catalogue", "artifacts")
    ]
    assert {line.split()[0] for line in lines if not line.startswith(" ")} == {"✓"}


def test_doctor_names_misspelt_settings(stack: StackInfo) -> None:
    """An unknown variable is a warning that suggests the right name, and is no failure by itself."""
    checks = examined(stack, 0, HARNESS_LEASE_TTLS="3")
    assert states(checks, "settings") == ["warning"]
    assert "HARNESS_LEASE_TTL_S" in checks["settings"][0]["mend"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("TENANT_RATE", "zzz"), ("TENANT_DOLLARS", "abc"), ("DEV_KEYLESS", "maybe"), ("TENANT_QUEUE", "0")],
)
def test_doctor_names_settings_that_only_the_gateway_refuses(stack: StackInfo, name: str, value: str) -> None:
    """The gateway's own message is shown: it would not start in this environment."""
    checks = examined(stack, 1, **{f"HARNESS_{name}": value})
    assert states(checks, "settings") == ["wrong"]
    assert f"HARNESS_{name}=" in checks["settings"][0]["said"]
    assert checks["settings"][0]["mend"] == "correct or unset it: no gateway starts with it"
    assert states(checks, "gateway") == ["ok"]


def test_command_that_makes_the_tables_names_the_home(tmp_path: Path) -> None:
    """Without it, another home's database would be migrated."""
    (tmp_path / "harness.db").touch()
    settings = {"HARNESS_DATABASE_URL": f"sqlite:///{tmp_path}/harness.db"}
    checked = run_here("doctor", "--home", str(tmp_path), "--json", env=settings)
    mends = {each["name"]: each["mend"] for each in json.loads(checked.stdout)["checks"]}
    assert mends["tables"] == f"run `harness migrate --home {quote(str(tmp_path))}`"
    assert mends["catalogue"] == "see the lines above", "which say that the database answers, and lacks its tables"


def test_commands_that_start_what_is_away_name_the_home(tmp_path: Path) -> None:
    """They are for the stack that was examined."""
    nowhere = {"HARNESS_GATEWAY_URL": "http://127.0.0.1:1", "HARNESS_DATABASE_URL": "postgresql://127.0.0.1:1/x"}
    checked = run_here("doctor", "--home", str(tmp_path), "--json", env=nowhere)
    mends = {each["name"]: each["mend"] for each in json.loads(checked.stdout)["checks"]}
    assert mends["gateway"].startswith(f"start one: harness up --home {quote(str(tmp_path))}, or")
    assert f"`harness migrate --home {quote(str(tmp_path))}` makes the tables" in mends["database"]


def test_doctor_finds_a_database_without_tables(stack: StackInfo, postgres_server: PostgresServer) -> None:
    """A database that was never migrated is wrong, and the command for that is named."""
    url = postgres_server.create_database()
    checks = examined(stack, 1, HARNESS_DATABASE_URL=url)
    assert "Postgres" in checks["database"][0]["said"]
    assert states(checks, "tables") == ["wrong"]
    assert "harness migrate" in checks["tables"][0]["mend"]
    assert states(checks, "catalogue") == ["wrong"]
    postgres_server.drop_database(url)


def test_doctor_reads_a_database_that_somebody_else_writes(stack: StackInfo) -> None:
    """An idle write transaction is reported, because turns wait for it too; it does not block the doctor."""
    writer = sqlite3.connect(stack.database_url.removeprefix("sqlite:///"), isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    try:
        checks = examined(stack, 1)  # which ends, although the writer does not
    finally:
        writer.close()
    assert states(checks, "database") == ["ok", "wrong"]
    assert "database is locked" in checks["database"][1]["said"]
    assert states(checks, "tables") == states(checks, "catalogue") == ["ok"]


def test_doctor_finds_a_disk_that_takes_no_more(stack: StackInfo) -> None:
    """The write lock is free then, but nothing can be committed; whoever tries is told why."""
    limited = ("bash", "-c", 'ulimit -f 0; exec "$0" "$@"', *HARNESS)
    doctor, keys = (
        subprocess.run([*limited, *command, "--home", str(stack.home)], capture_output=True, text=True, check=False)
        for command in (("doctor", "--json"), ("keys", "create", "--tenant", "a", "--name", "b"))
    )
    found = [check for check in json.loads(doctor.stdout)["checks"] if check["name"] == "database"]
    assert [check["state"] for check in found] == ["ok", "wrong"]
    assert "takes no writes: " in found[1]["said"]
    assert "make room for it" in found[1]["mend"]
    assert (keys.returncode, keys.stdout) == (3, "")
    assert keys.stderr.endswith("may have been made: disk I/O error\n")


def test_doctor_finds_a_postgres_that_takes_no_writes(stack: StackInfo, postgres_server: PostgresServer) -> None:
    """A replica or read-only server is wrong."""
    url = postgres_server.create_database()
    upgrade(url)
    checks = examined(stack, 1, HARNESS_DATABASE_URL=f"{url}?options=-c%20default_transaction_read_only%3Don")
    assert states(checks, "database") == ["ok", "wrong"]
    assert "takes no writes" in checks["database"][1]["said"]
    assert states(checks, "tables") == ["ok"]
    postgres_server.drop_database(url)


def test_doctor_finds_a_postgres_that_keeps_transactions_of_processes_that_hang(
    stack: StackInfo, postgres_server: PostgresServer
) -> None:
    """As behind a pooler that drops the settings of its clients; there, prepared statements get mixed up as well."""
    url = postgres_server.create_database()
    given = f"{url}?options=-c%20idle_in_transaction_session_timeout%3D0"
    checks = examined(stack, 1, HARNESS_DATABASE_URL=given)
    assert states(checks, "database") == ["ok", "wrong"]
    assert "not of a pooler" in checks["database"][1]["mend"]
    postgres_server.drop_database(url)


def test_doctor_tells_what_mends_a_service_that_answers_with_no(
    stack: StackInfo, postgres_server: PostgresServer
) -> None:
    """A service that answers with an error is running, so the advice is not to start it."""
    url = postgres_server.create_database()
    name = f"limited{time.monotonic_ns()}"
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute(f"create role {name} login password 'p' connection limit 0".encode())
        limited = make_url(url).set(username=name, password="p").render_as_string(hide_password=False)  # noqa: S106 - made here
        nobody = make_url(url).set(database="nodb").render_as_string(hide_password=False)
        with valkey_service() as redis_url:
            client: Any = redis.Redis(port=urlsplit(redis_url).port or 0)
            client.config_set("requirepass", "secret")
            client.close()
            checks = examined(stack, 1, HARNESS_DATABASE_URL=limited, HARNESS_REDIS_URL=redis_url)
            unnamed = f"{redis_url.replace('redis:', 'rediss:')}?ssl_ca_certs=/nonexistent"
            without = examined(stack, 1, HARNESS_REDIS_URL=unnamed)
        assert "files" in without["redis"][0]["mend"], without["redis"]
        assert "connections" in checks["database"][0]["mend"], checks["database"]
        assert "user and the password" in checks["redis"][0]["mend"], checks["redis"]
        checks = examined(stack, 1, HARNESS_DATABASE_URL=nobody)
        assert checks["database"][0]["mend"].startswith("create it, then `harness migrate`"), checks["database"]
        checks = examined(stack, 1, HARNESS_DATABASE_URL="sqlite:////")
        assert checks["database"][0]["mend"].startswith("name a file, in a folder"), checks["database"]
        admin.execute(f"drop role {name}".encode())
    postgres_server.drop_database(url)


def test_doctor_finds_a_database_of_a_newer_version(stack: StackInfo, tmp_path: Path) -> None:
    """Turns still run, so it is a warning; ``harness migrate`` is not suggested, since it would refuse."""
    own = stack.database_url.removeprefix("sqlite:///")
    copied = tmp_path / "newer.db"
    with closing(sqlite3.connect(own)) as source, closing(sqlite3.connect(copied)) as connection, connection:
        source.backup(connection)
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    (tables,) = examined(stack, 0, HARNESS_DATABASE_URL=f"sqlite:///{copied}")["tables"]
    assert (tables["state"], tables["said"][:17]) == ("warning", "at revision 9999,")
    assert "install a version that knows 9999" in tables["mend"]
    assert "migrate" not in tables["mend"]


def test_doctor_finds_a_redis_that_forgets_and_no_workers(stack: StackInfo) -> None:
    """A Redis that evicts keys is wrong, and one without append-only file is noted; its workers are looked for."""
    with valkey_service() as url:
        client: Any = redis.Redis(port=urlsplit(url).port or 0)
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.close()
        checks = examined(stack, 1, HARNESS_REDIS_URL=url)
    assert states(checks, "redis") == ["ok", "wrong", "warning"]
    assert "noeviction" in checks["redis"][1]["mend"]
    assert states(checks, "workers") == ["wrong", "wrong"]
    assert ["--role coordinator" in checks["workers"][0]["mend"], "--role tools" in checks["workers"][1]["mend"]]
    assert states(checks, "catalogue") == ["wrong"]
    assert "nobody serves ping of agent trivial" in checks["catalogue"][0]["said"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("CONFIG", "SET", "maxmemory", "1"), "is full, and refuses writes"),
        (("REPLICAOF", "127.0.0.1", "1"), "is a replica, which takes no writes"),
        (("CONFIG", "SET", "min-replicas-to-write", "1"), "takes no writes: redis refused: N"),
    ],
    ids=["full", "replica", "no replicas"],
)
def test_doctor_finds_a_redis_that_takes_no_writes(stack: StackInfo, command: tuple[str, ...], said: str) -> None:
    """It is wrong, with advice, and the workers cannot be asked; everything else is still checked."""
    with valkey_service() as url:
        client: Any = redis.Redis(port=urlsplit(url).port or 0)
        client.execute_command(*command)
        client.close()
        checks = examined(stack, 1, HARNESS_REDIS_URL=url)
        drained = run_here("drain", "--home", str(stack.home), env={"HARNESS_REDIS_URL": url})
    assert said in checks["redis"][1]["said"]
    assert [check["said"].partition(":")[0] for check in checks["workers"]] == ["the broker refuses"]
    assert states(checks, "catalogue") == states(checks, "artifacts") == ["ok"]
    assert (drained.returncode, drained.stderr.partition(": ")[2][:18]) == (3, "the broker refuses")


def test_drain_that_nobody_answers_drains_nobody(stack: StackInfo) -> None:
    """Workers that are too busy to answer in time keep working."""
    workers = [process for process in stack.processes if process.role in set(Role)]
    stopped = [psutil.Process(worker.pid) for worker in workers]
    for process in stopped:
        process.suspend()
    try:
        drained = run_here("drain", "--home", str(stack.home), "--wait", "0")
    finally:
        for process in stopped:
            process.resume()
    assert (drained.returncode, drained.stdout) == (0, "no worker answers\n"), drained.stderr
    wait_until(lambda: run_here("doctor", "--home", str(stack.home)).returncode == 0, "the workers to answer again", 60)
    assert states(examined(stack, 0), "workers") == ["ok", "ok"]
    assert [process for process in stopped if not process.is_running()] == []


def test_doctor_finds_a_tool_whose_queue_nobody_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that has the tool but takes other queues does not serve it; the queue is named."""
    monkeypatch.chdir(ROOT)
    with open_stack(home=tmp_path, app=APP, tools=0) as info, tool_worker(info, "--queues", "gpu"):
        checks = examined(info, 1)
    assert states(checks, "workers") == ["ok", "ok"]
    assert "nobody takes the calls of ping (queue tools) of agent trivial" in checks["catalogue"][0]["said"]
    assert "--queues tools" in checks["catalogue"][0]["mend"]


@pytest.mark.parametrize("limit", ["1/s", 0])
def test_tool_with_a_rate_limit_is_served(stack: StackInfo, limit: str | int) -> None:
    """Somebody limits a tool by Celery's remote control, or lifts that limit: workers then name the limit too."""
    with Celery("operator", broker=stack.redis_url, set_as_current=False) as operator:
        control: Any = operator.control
        answers = control.rate_limit("tool.ping", limit, reply=True, timeout=5, limit=2)
        assert any("ok" in said for answer in answers for said in answer.values()), answers
        assert states(examined(stack, 0), "catalogue") == ["ok"]


def test_doctor_without_anything_that_answers_exits_3(stack: StackInfo) -> None:
    """If nothing can be reached the exit code is 3; each part is reported, without passwords."""
    checks = examined(
        stack,
        3,
        HARNESS_GATEWAY_URL="http://u:hidden@127.0.0.1:1",
        HARNESS_REDIS_URL="redis://:hidden@127.0.0.1:1/0",
        HARNESS_DATABASE_URL="postgresql://127.0.0.1:1/x?user=u&password=hidden",
        HARNESS_ARTIFACT_URL="nosuch://u:hidden@127.0.0.1/x",
    )
    assert [states(checks, name) for name in ("gateway", "redis", "database")] == [["wrong"]] * 3
    assert "hidden" not in json.dumps(checks)
    assert "--url" not in checks["gateway"][0]["said"]
    assert "HARNESS_GATEWAY_URL" in checks["gateway"][0]["mend"]
    assert "workers" not in checks


@pytest.mark.acceptance
def test_doctor_waits_some_seconds_for_what_keeps_silent(stack: StackInfo) -> None:
    """A gateway or artifact store that accepts connections but never answers is reported, and the rest is checked."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        store = {"HARNESS_ARTIFACT_URL": "s3://bucket/x", "AWS_ENDPOINT_URL": url}
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        checks = examined(stack, 1, HARNESS_GATEWAY_URL=url, **store, **keys)
    assert states(checks, "gateway") == states(checks, "artifacts") == ["wrong"]
    assert "does not answer: no answer within 10 s" in checks["artifacts"][0]["said"]
    assert states(checks, "catalogue") == ["ok"]


def test_doctor_with_nothing_named_says_how_to_start() -> None:
    """Without a stack and without URLs there is nothing to check."""
    ran = run_here("doctor", "--home", "/nonexistent")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert "harness up --app package.module:registry --home /nonexistent\n" in ran.stderr
    told = run_here("doctor", "--json", "--home", "/nonexistent")
    assert (told.returncode, json.loads(told.stdout), told.stderr) == (3, {"ok": False, "checks": []}, ran.stderr)
