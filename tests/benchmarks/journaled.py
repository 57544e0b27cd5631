"""The least that durability costs: the bare canvas with the harness's commits and gate commands, and nothing else.

The nine tasks of ``bare``, on the harness's own Celery application and way to Redis, with as many statements,
scripts and events a turn as the harness sends, of about their size. Each is sent raw; nothing is decided, checked or
built. What the harness costs beyond this is its own logic; what this costs beyond the canvas is the promise itself.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from threading import Event
from typing import Any, Final, LiteralString

import psycopg
from celery import Task, chain, chord

from harness_worker.adapters.celery.app import make_app
from harness_worker.config import load_settings
from harness_worker.lean_redis import LeanPool, LeanRedis
from tests.apps.w1 import BODY_S
from tests.benchmarks.bare import STEPS, TOOLS

REDIS_URL = os.environ.get("W1_BARE_REDIS_URL", "redis://127.0.0.1:6379/0")
DATABASE_URL = os.environ.get("W1_JOURNAL_URL", "")

TABLES: Final = (
    "CREATE TABLE turns (id text PRIMARY KEY, version int NOT NULL, data text NOT NULL)",
    "CREATE TABLE rows (turn_id text, place int, data text NOT NULL, PRIMARY KEY (turn_id, place))",
)
INSERT: Final = "INSERT INTO turns VALUES (%(turn)s, 0, %(data)s)"
_READ: Final = "SELECT version, data FROM turns WHERE id = %(turn)s"
_COMMIT: Final = """
WITH turn AS (UPDATE turns SET version = version + 1, data = %(data)s WHERE id = %(turn)s RETURNING version),
added AS (
    INSERT INTO rows SELECT %(turn)s, new.place, new.data
    FROM json_to_recordset(%(rows)s) AS new (place int, data text) WHERE EXISTS (SELECT FROM turn)
)
SELECT version FROM turn"""
_GATE: Final = """
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], 60000)
return redis.call('HGETALL', KEYS[1])"""

TURN_CHARS: Final = 300
ROW_CHARS: Final = 200

app = make_app(load_settings(), redis_url=REDIS_URL)
redis = LeanRedis(connection_pool=LeanPool.from_url(REDIS_URL))  # pyright: ignore[reportUnknownMemberType] - untyped **kwargs
_gate = redis.register_script(_GATE)
_mine = threading.local()


def _task(name: str) -> Callable[[Callable[..., object]], Any]:
    """Make a task of a function; ``app.task`` would share it with every application, of which ours takes none."""

    def registered(function: Callable[..., object]) -> Any:  # noqa: ANN401 - Celery's own types
        named = {"name": name, "run": staticmethod(function), "__module__": __name__}
        return app.register_task(type(function.__name__, (Task,), named)())

    return registered


@_task("journaled.read")
def read(turn: str, number: int) -> int:
    """Be admitted, say so, wait 10 ms, hand in."""
    _ask_gate(turn)
    _say(turn, 1)
    Event().wait(BODY_S)
    _ask_gate(turn)
    return number


@_task("journaled.write")
def write(turn: str, number: int) -> int:
    """Be journaled as started, ask the gate, say so, wait 10 ms, be journaled as ended, say so."""
    _read(turn)
    _commit(turn, 60 + 10 * number, 1)
    _ask_gate(turn)
    _say(turn, 1)
    Event().wait(BODY_S)
    _commit(turn, 65 + 10 * number, 1)
    _say(turn, 1)
    return number


@_task("journaled.first")
def first(turn: str) -> None:
    """Claim and plan; then four reads, and the second step."""
    _claim(turn, 0, 2)
    _plan(turn, 10, 6)
    _ask_gate(turn)
    chord([_on(TOOLS, read, turn, number) for number in range(4)], app=app)(_on(STEPS, second, turn))


@_task("journaled.second")
def second(turn: str) -> None:
    """Claim, collect and plan; then two writes in order, and the third step."""
    _claim(turn, 20, 0)
    _ask_gate(turn)
    _collect(turn, 30, 6)
    _plan(turn, 40, 4)
    _ask_gate(turn)
    chain(_on(TOOLS, write, turn, 0), _on(TOOLS, write, turn, 1), _on(STEPS, third, turn), app=app).apply_async()


@_task("journaled.third")
def third(turn: str) -> None:
    """Claim, collect and end; then tell the client."""
    _claim(turn, 80, 0)
    _collect(turn, 85, 4)
    _ask_gate(turn)
    _plan(turn, 90, 4)
    _ask_gate(turn)
    redis.rpush(f"done:{turn}", "1")


def _claim(turn: str, place: int, rows: int) -> None:
    """A visit's first commit, and the gate's fence."""
    _read(turn)
    _commit(turn, place, rows)
    _say(turn, rows)
    _ask_gate(turn)


def _collect(turn: str, place: int, rows: int) -> None:
    _commit(turn, place, rows)
    _say(turn, rows)


def _plan(turn: str, place: int, rows: int) -> None:
    """The history read for the model, and the commit of what it said."""
    _read(turn)
    _commit(turn, place, rows)
    _say(turn, rows)


def _read(turn: str) -> None:
    _execute(_READ, {"turn": turn})


def _commit(turn: str, place: int, rows: int) -> None:
    added = json.dumps([{"place": place + number, "data": "r" * ROW_CHARS} for number in range(rows)])
    _execute(_COMMIT, {"turn": turn, "data": "t" * TURN_CHARS, "rows": added})


def _execute(statement: LiteralString, values: dict[str, Any]) -> None:
    if getattr(_mine, "process", None) != os.getpid():  # connections are a thread's, and of no use after a fork
        _mine.connection = psycopg.connect(DATABASE_URL, autocommit=True)
        _mine.process = os.getpid()
    _mine.connection.execute(statement, values).fetchone()


def _ask_gate(turn: str) -> None:
    _gate(keys=[f"gate:{turn}"], args=["field", "1"])


def _say(turn: str, events: int) -> None:
    if events:
        append = ("XADD", "events", "MAXLEN", "~", 5_000, "*", "turn", turn, "told", "e" * ROW_CHARS * events)
        redis.batch([append, ("EXPIRE", "events", 3_600)])


def _on(queue: str, task: Any, *args: object) -> Any:  # noqa: ANN401 - Celery's own types
    return task.si(*args).set(queue=queue)
