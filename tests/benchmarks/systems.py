"""The systems that are measured side by side, each on a Valkey of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import psycopg
from redis import Redis

from harness_worker.adapters.celery.app import make_app
from harness_worker.adapters.sql.migrate import upgrade
from harness_worker.bootstrap.engine import new_id
from harness_worker.bootstrap.fleet import Fleet, make_fleet
from harness_worker.config import load_settings
from harness_worker.core.budget import BudgetLimits
from harness_worker.core.records import Turn
from harness_worker.testing.services import valkey_service
from harness_worker.testing.waiting import wait_until
from harness_worker.wire import EVENT_STREAM, Priority, TurnStatus
from tests.benchmarks import bare, journaled

THREADS: Final = 8
PROCESSES: Final = 8
LONGEST_S: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Something that works turns.

    Args:
        name: What the report calls it.
        start: Starts a turn and returns a function that waits for its end.
        redis_url: Its Redis.
        database_url: Its journal, if it has one.
    """

    name: str
    start: Callable[[], Callable[[], None]]
    redis_url: str
    database_url: str = ""

    def work(self) -> Work:
        """What it has done so far."""
        with Redis.from_url(self.redis_url) as client:  # pyright: ignore[reportUnknownMemberType] - untyped **kwargs
            info: dict[str, Any] = client.info("all")  # pyright: ignore[reportUnknownMemberType] - as above
        pushes = info.get("cmdstat_lpush", {"calls": 0})
        return Work(
            commands=int(info["total_commands_processed"]),
            messages=int(pushes["calls"]),
            transactions=_transactions(self.database_url),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """How many commands Redis served, messages were queued and transactions wrote; ``None``: nobody counts them."""

    commands: int
    messages: int
    transactions: int | None


def _transactions(url: str) -> int | None:
    """How many transactions of a Postgres server have written so far."""
    if not url.startswith("postgresql"):
        return None
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        row = connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text").fetchone()
    return int(row[0]) if row is not None else None


@contextmanager
def bare_canvas() -> Generator[System]:
    """The bare canvas with its workers."""
    with valkey_service() as url, ExitStack() as stack:
        _celery_workers(stack, bare.__name__, {"W1_BARE_REDIS_URL": url})
        app = bare.app
        app.conf.update(broker_url=url, result_backend=url)
        done = stack.enter_context(_patient(url))

        def start() -> Callable[[], None]:
            turn = str(uuid.uuid4())
            app.send_task("bare.first", args=(turn,), queue=bare.STEPS, ignore_result=True)
            return lambda: _expect(done.blpop([f"done:{turn}"], timeout=LONGEST_S))

        yield System(name="bare canvas", start=start, redis_url=url)


@contextmanager
def journaled_canvas(database_url: str) -> Generator[System]:
    """The canvas that commits as often as the harness, with its workers, on an empty Postgres database."""
    plain_url = database_url.replace("+psycopg", "")
    with valkey_service() as url, psycopg.connect(plain_url, autocommit=True) as journal, ExitStack() as stack:
        for table in journaled.TABLES:
            journal.execute(table)
        _celery_workers(stack, journaled.__name__, {"W1_BARE_REDIS_URL": url, "W1_JOURNAL_URL": plain_url})
        app = make_app(load_settings(), redis_url=url)
        done = stack.enter_context(_patient(url))

        def start() -> Callable[[], None]:
            turn = str(uuid.uuid4())
            journal.execute(journaled.INSERT, {"turn": turn, "data": "t" * journaled.TURN_CHARS})
            app.send_task("journaled.first", args=(turn,), queue=bare.STEPS, ignore_result=True)
            return lambda: _expect(done.blpop([f"done:{turn}"], timeout=LONGEST_S))

        yield System(name="journaled canvas", start=start, redis_url=url, database_url=database_url)


def _celery_workers(stack: ExitStack, module: str, named: dict[str, str]) -> None:
    """Celery's own workers of a module's application: one for the steps, one for the tools."""
    env = {**os.environ, **named}
    celery = [sys.executable, "-m", "celery", "-A", module, "worker", "-l", "WARNING"]
    celery += ["--without-gossip", "--without-mingle"]
    steps = ["-P", "threads", "-c", str(THREADS), "-Q", bare.STEPS, "-n", "s@%h"]
    stack.enter_context(_process([*celery, *steps], env))
    stack.enter_context(_process([*celery, "-c", str(PROCESSES), "-Q", bare.TOOLS, "-n", "t@%h"], env))


@contextmanager
def harness(database_url: str, home: Path) -> Generator[System]:
    """The harness with its workers, its journal in ``database_url``."""
    upgrade(database_url)
    with valkey_service() as url, ExitStack() as stack:
        named = {"HARNESS_REDIS_URL": url, "HARNESS_DATABASE_URL": database_url, "HARNESS_HOME": str(home)}
        env = {**os.environ, **named, "HARNESS_APP": "tests.apps.w1:registry", "HARNESS_LOG_LEVEL": "WARNING"}
        for role, size in (("coordinator", THREADS), ("tools", PROCESSES)):
            ready = home / f"{role}.ready"
            command = [sys.executable, "-m", "harness_worker.entrypoints.cli", "worker", "--role", role]
            stack.enter_context(_process([*command, "--concurrency", str(size), "--ready-file", str(ready)], env))
            wait_until(ready.exists, f"the {role} worker to be ready", timeout_s=60)
        fleet = make_fleet(load_settings(redis_url=url, database_url=database_url, home=home))
        stack.callback(fleet.close)
        ends = Ends(stack.enter_context(_patient(url)))
        yield System(name="harness", start=lambda: _start(fleet, ends), redis_url=url, database_url=database_url)


def _start(fleet: Fleet, ends: Ends) -> Callable[[], None]:
    turn = Turn(
        id=new_id(),
        tenant="default",
        session_id=new_id(),
        agent="w1",
        status=TurnStatus.QUEUED,
        input="measure",
        priority=Priority.INTERACTIVE,
        budget=BudgetLimits(),
    )
    fleet.store.insert_turn(turn)
    fleet.dispatcher.advance(turn.id, turn.priority)
    return lambda: ends.wait(turn.id)


class Ends:
    """Follows the live stream and knows which turns have ended."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._last = "0"
        self._ended: set[str] = set()

    def wait(self, turn_id: str) -> None:
        """Read on until the turn's last event."""
        while turn_id not in self._ended:
            reply = cast("Any", self._client.xread({EVENT_STREAM: self._last}, block=LONGEST_S * 1000))
            _expect(reply)
            for self._last, fields in reply[0][1]:
                if '"turn.completed"' in fields["told"]:
                    self._ended.add(fields["turn"])
        self._ended.discard(turn_id)


def _patient(url: str) -> Redis:
    """A client that waits for a turn's end; the first turn waits for the workers' start."""
    return Redis.from_url(url, decode_responses=True, socket_timeout=2 * LONGEST_S)  # pyright: ignore[reportUnknownMemberType]


def _expect(reply: object) -> None:
    if not reply:
        sys.exit(f"a turn did not end within {LONGEST_S} s")


@contextmanager
def _process(command: list[str], env: dict[str, str]) -> Generator[None]:
    process = subprocess.Popen(command, env=env)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)
