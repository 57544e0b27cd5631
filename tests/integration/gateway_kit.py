"""A real gateway for tests, and a stand-in that writes the rows and events that workers would write."""

# ruff: noqa: ANN401 - columns, bodies and answers are any JSON
from __future__ import annotations

import base64
import json
import os
import re
import secrets
import ssl
import subprocess
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import httpx2
import pytest
import redis
import uvicorn
from sqlalchemy import Engine, create_engine, event, insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway import database, publisher
from api_gateway.app import create_app
from api_gateway.config import Settings
from api_gateway.metrics import figures
from api_gateway.routes import health
from harness_worker.adapters.sql.api_keys import SqlApiKeys
from harness_worker.adapters.sql.engine import make_engine
from harness_worker.core.api_keys import ApiKey
from harness_worker.credentials import KEY_PREFIX, key_digest
from harness_worker.schema import agents, artifacts, db_now, give_clock, messages, tool_calls, turn_events, turns
from harness_worker.testing.waiting import wait_until
from harness_worker.wire import DEFAULT_TENANT, EVENT_STREAM, LATER, turn_queue
from tests.stacks import HARNESS
from tests.unit.builders import CAPS

NOWHERE = "redis://127.0.0.1:1/0"
AGENT = "support"
PUBLISH_TIMEOUT_S = 10.0
"""How long a test's gateway waits for the broker: longer than a user's, because a machine under load is slow."""

DATABASE_TIMEOUT_S = 30
"""How long it waits for a connection, for SQLite's write lock, for ``/readyz`` and for ``/metrics``, and how long its
transactions may idle."""

WITHOUT_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients of plain HTTP: each would load all the authorities of the world, for 20 ms."""


@contextmanager
def serving(settings: Settings, host: str = "127.0.0.1") -> Generator[str]:
    """Serve a gateway on a free port of this machine; yields its URL."""
    config = uvicorn.Config(
        create_app(settings), host, port=0, log_config=None, ws="none", lifespan="on", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="gateway", daemon=True)
    thread.start()
    wait_until(lambda: server.started or not thread.is_alive(), "the gateway to start")
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the gateway did not stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Writes rows and stream entries as a worker would."""

    engine: Engine
    redis: Any

    def publish_agent(self, name: str = AGENT, **columns: Any) -> None:
        """Add an agent to the catalogue."""
        row: dict[str, Any] = {
            "name": name,
            "app": "test",
            "model": "scripted:x",
            "tools": [],
            "budget": CAPS,
            "parallel": True,
        }
        with self.engine.begin() as connection:
            connection.execute(insert(agents).values({**row, "published_at": 0.0, **columns}))

    def artifact(self, artifact_id: str, size_bytes: int, tenant: str = DEFAULT_TENANT) -> None:
        """Add the row of an artifact of the turn ``turn``, as a commit does."""
        row = {
            "id": artifact_id,
            "tenant": tenant,
            "session_id": "s",
            "turn_id": "turn",
            "call_id": "0.0",
            "url": "somewhere",
            "size_bytes": size_bytes,
            "summary": "0123",
            "created_at": db_now(),
            "expires_at": db_now() + 3_600,
        }
        with self.engine.begin() as connection:
            connection.execute(insert(artifacts).values(row))

    def row(self, turn_id: str) -> Any:
        """The turn's row."""
        with self.engine.connect() as connection:
            return connection.execute(select(turns).where(turns.c.id == turn_id)).one()

    def change(self, turn_id: str, **columns: Any) -> None:
        """Change the turn's row."""
        with self.engine.begin() as connection:
            connection.execute(update(turns).where(turns.c.id == turn_id).values(**columns))

    def say(self, turn_id: str, role: str, content: Any) -> None:
        """Append a message to the turn's history."""
        with self.engine.begin() as connection:
            count = connection.execute(select(turns.c.message_count).where(turns.c.id == turn_id)).scalar_one()
            row = {"turn_id": turn_id, "position": count, "role": role, "content": content}
            connection.execute(insert(messages).values(row))
            connection.execute(update(turns).where(turns.c.id == turn_id).values(message_count=count + 1))

    def call(self, turn_id: str, step: int, position: int, **columns: Any) -> None:
        """Add a planned call to the turn."""
        row: dict[str, Any] = {
            "turn_id": turn_id,
            "step": step,
            "position": position,
            "tool_use_id": f"toolu_{position}",
            "tool": "get_order",
            "effect": "READ_ONLY",
            "arguments": {"order_id": "ö1"},
            "wave": 0,
            "retry_safe": True,
            "was_coerced": False,
            "timeout_s": 10.0,
            "queue": "tools",
            "idempotency_key": f"{turn_id}:{step}.{position}",
            "status": "planned",
            "attempt": 1,
            "collected": False,
        }
        with self.engine.begin() as connection:
            connection.execute(insert(tool_calls).values({**row, **columns}))

    def event(self, turn_id: str, kind: str, *, live: bool = True, **data: Any) -> int:
        """Commit a durable event, and send it live unless told otherwise; returns its seq."""
        seq = self._commit(turn_id, kind, data, {})
        if live:
            self.send(turn_id, kind, seq, **data)
        return seq

    def _commit(self, turn_id: str, kind: str, data: dict[str, Any], columns: dict[str, Any]) -> int:
        with self.engine.begin() as connection:
            seq = connection.execute(select(turns.c.last_seq).where(turns.c.id == turn_id)).scalar_one() + 1
            row = {"turn_id": turn_id, "seq": seq, "type": kind, "at": 1_700_000_000.25, "data": data}
            connection.execute(insert(turn_events).values(row))
            connection.execute(update(turns).where(turns.c.id == turn_id).values(last_seq=seq, **columns))
        return seq

    def send(self, turn_id: str, kind: str, seq: int | None, **data: Any) -> None:
        """Send an event to the live stream only; without a seq it is a hint."""
        told = [[seq, kind, 1_700_000_000.25, json.dumps(data)]]
        self.redis.xadd(EVENT_STREAM, {"turn": turn_id, "told": json.dumps(told)})

    def finish(self, turn_id: str, status: str = "completed", *, live: bool = True) -> None:
        """End the turn: status and terminal event in one commit."""
        reason = {"completed": "end_turn", "cancelled": "cancelled"}.get(status, "internal")
        columns = {"status": status, "stop_reason": reason, "output_text": "done", "finished_at": 1_700_000_001.5}
        kind, data = f"turn.{status}", {"status": status}
        seq = self._commit(turn_id, kind, data, columns)
        if live:
            self.send(turn_id, kind, seq, **data)

    def wake_ups(self, turn_id: str, priority: str = "interactive") -> list[dict[str, Any]]:
        """The headers of the Celery messages for the turn in its queue, each with the decoded body added."""
        queue = turn_queue(priority)
        lists = (queue, f"{queue}\x06\x16{LATER}")  # as kombu names that of a priority
        found = [json.loads(raw) for each in lists for raw in self.redis.lrange(each, 0, -1)]
        told = [{**message["headers"], "body": json.loads(base64.b64decode(message["body"]))} for message in found]
        return [message for message in told if message["body"][0] == [turn_id]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """A running gateway, a client of it, and a stand-in for its workers."""

    http: httpx2.Client
    worker: Worker
    settings: Settings
    url: str
    defaults: dict[str, Any] = field(default_factory=lambda: {"agent": AGENT, "input": "Where is order ö1?"})

    def post(self, *, prefer: str | None = None, key: str | None = None, **body: Any) -> httpx2.Response:
        """Post a turn."""
        given = {"Prefer": prefer, "Idempotency-Key": key}
        headers = {name: value for name, value in given.items() if value is not None}
        return self.http.post("/v1/turns", json={**self.defaults, **body}, headers=headers)

    def posted(self, **body: Any) -> dict[str, Any]:
        """Post a turn that must be accepted."""
        response = self.post(**body)
        assert response.status_code == 202, response.text
        return response.json()

    def post_batch(self, *params: dict[str, Any], key: str | None = None, **body: Any) -> httpx2.Response:
        """Post a batch of turns; the first is called ``t0``, the next ``t1``."""
        items = [{"custom_id": f"t{number}", "params": {**self.defaults, **each}} for number, each in enumerate(params)]
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.http.post("/v1/batches", json={"requests": items, **body}, headers=headers)

    def posted_batch(self, *params: dict[str, Any], **body: Any) -> tuple[dict[str, Any], list[str]]:
        """Post a batch that must be accepted; it, and the ids of its turns in their order."""
        response = self.post_batch(*params, **body)
        assert response.status_code == 202, response.text
        batch: dict[str, Any] = response.json()
        return batch, self.ids(batch_id=batch["id"], limit=200)[::-1]

    def turn(self, turn_id: str, **query: str) -> dict[str, Any]:
        """Read a turn that must exist."""
        response = self.http.get(f"/v1/turns/{turn_id}", params=query)
        assert response.status_code == 200, response.text
        return response.json()

    def ids(self, **query: str | int) -> list[str]:
        """The ids of one page of the list."""
        response = self.http.get("/v1/turns", params=query)
        assert response.status_code == 200, response.text
        return [turn["id"] for turn in response.json()["data"]]


@contextmanager
def gateway_on(database_url: str, gateway_redis: str, **settings: Any) -> Generator[Gateway]:
    """A gateway on a migrated database, with one agent published.

    It has the same Redis as the stand-in for workers, unless ``redis_url`` among the settings is another one.
    """
    places = {"database_url": database_url, "redis_url": gateway_redis}
    chosen = Settings.model_validate(
        {**places, "dev_keyless": True, "publish_timeout_s": PUBLISH_TIMEOUT_S, **settings}
    )
    engine = sync_engine(database_url)
    broker = redis_at(gateway_redis)
    try:
        worker = Worker(engine=engine, redis=broker)
        worker.publish_agent()
        with _patient(), serving(chosen) as url, httpx2.Client(base_url=url, timeout=30, verify=WITHOUT_TLS) as http:
            yield Gateway(http=http, worker=worker, settings=chosen, url=url)
    finally:
        broker.close()
        engine.dispose()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayProcess:
    """A gateway that runs as operators start it, and where it answers."""

    process: subprocess.Popen[bytes]
    url: str

    @property
    def port(self) -> int:
        """The port of its URL."""
        return int(self.url.rpartition(":")[2])


LISTENS: Final = re.compile(r'"event": "listens on (127\.0\.0\.1) port (\d+)"')


@contextmanager
def gateway_process(
    database_url: str, redis_url: str, log: Path, *, grace_s: int = 60, **settings: str
) -> Generator[GatewayProcess]:
    """A gateway on a free port, once it answers; ``settings`` are further variables."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HARNESS_")},
        "HARNESS_DATABASE_URL": database_url,
        "HARNESS_REDIS_URL": redis_url,
        "HARNESS_DEV_KEYLESS": "1",
        "HARNESS_LOG_LEVEL": "DEBUG",
        "HARNESS_GRACE_S": str(grace_s),
        **settings,
    }
    with log.open("wb") as output:
        process = subprocess.Popen([*HARNESS, "gateway", "--port", "0"], env=environment, stdout=output, stderr=output)

        def listens() -> re.Match[str] | None:
            assert process.poll() is None, log.read_text()
            return LISTENS.search(log.read_text())

        try:
            host, port = wait_until(listens, "the gateway to listen", 60).groups()
            url = f"http://{host}:{port}"
            wait_until(lambda: is_healthy(url), "the gateway to answer", 60)
            yield GatewayProcess(process=process, url=url)
        finally:
            process.kill()
            process.wait()


@contextmanager
def _patient() -> Generator[None]:
    """Let a slow broker or database not count as one that is away, and a slow machine not as one that stands still."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publisher, "SOCKET_TIMEOUT_S", PUBLISH_TIMEOUT_S)
        patch.setattr(health, "CHECK_TIMEOUT_S", DATABASE_TIMEOUT_S)
        patch.setattr(figures, "TIMEOUT_S", DATABASE_TIMEOUT_S)
        patch.setattr(database, "CONNECT_TIMEOUT_S", DATABASE_TIMEOUT_S)
        patch.setattr(database, "BUSY_TIMEOUT_S", DATABASE_TIMEOUT_S)
        patch.setattr(database, "IDLE_S", DATABASE_TIMEOUT_S)
        yield


@contextmanager
def keys_on(database_url: str) -> Generator[SqlApiKeys]:
    """The API keys of a database, as the command line manages them."""
    engine = make_engine(database_url, pool_size=1)
    try:
        yield SqlApiKeys(engine)
    finally:
        engine.dispose()


def new_key(keys: SqlApiKeys, tenant: str, days: int | None = None) -> tuple[str, ApiKey]:
    """A new key of the tenant, and the row that is stored of it."""
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    return key, keys.add(secrets.token_hex(6), key_digest(key) or "", tenant=tenant, name="test", days=days)


def bearer(key: str) -> dict[str, str]:
    """The header that carries a key."""
    return {"Authorization": f"Bearer {key}"}


def sync_url(database_url: str) -> str:
    """The database's URL, with the Postgres driver that is installed."""
    return database_url.replace("postgresql://", "postgresql+psycopg://")


def sync_engine(database_url: str) -> Engine:
    """An engine that knows the database's clock."""
    engine = create_engine(sync_url(database_url))
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", give_clock)
    return engine


def engines_of(engine: AsyncEngine) -> set[Engine]:
    """What a gateway's engine works with: that for reads and that for transactions that write, which may be one."""
    return {engine.sync_engine, database.writer_of(engine).sync_engine}


@contextmanager
def meanwhile(engine: AsyncEngine, statement: str, happens: Callable[[], object]) -> Generator[None]:
    """Within the context, something happens just before the engine executes the first statement with this text."""
    has_happened = False

    def strike(_connection: Any, _cursor: Any, text: str, *_: Any) -> None:
        nonlocal has_happened
        if statement in text and not has_happened:
            has_happened = True
            happens()

    for each in engines_of(engine):
        event.listen(each, "before_cursor_execute", strike)
    try:
        yield
    finally:
        for each in engines_of(engine):
            event.remove(each, "before_cursor_execute", strike)
    assert has_happened, f"no statement has {statement!r}"


def redis_at(url: str) -> Any:
    """A client of that Redis."""
    return cast("Any", redis.Redis).from_url(url, decode_responses=True)


def is_healthy(url: str) -> bool:
    """Whether a gateway answers there."""
    try:
        return httpx2.get(f"{url}/healthz").status_code == 200
    except httpx2.TransportError:
        return False


def shut_down(port: int) -> None:
    """Stop the Redis on that port."""
    client: Any = cast("Any", redis.Redis)(port=port)
    client.shutdown(nosave=True)
    client.close()


def problem_of(response: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """The problem document of a response that must be one."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert (document["status"], document["code"]) == (status, code), document
    assert document["detail"]
    assert document["title"]
    assert "Traceback" not in response.text
    return document


def statuses(caplog: pytest.LogCaptureFixture) -> list[int]:
    """The statuses in the access log so far; the log's level must be INFO."""
    return [record.__dict__["status"] for record in caplog.records if record.name == "api_gateway.access"]


def frames_of(lines: Sequence[str]) -> list[dict[str, str]]:
    """The events among the lines of a stream, without comments."""
    frames = "\n".join(lines).split("\n\n")
    told = [[line.partition(": ") for line in frame.split("\n") if line and line[0] != ":"] for frame in frames]
    return [{name: value for name, _, value in frame} for frame in told if frame]
