"""What happens to a fleet in a storm: each kind of weather is a method that strikes once."""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import psutil
import psycopg
from redis import Redis
from redis.exceptions import RedisError

from harness_worker.faults import Action, Fault, Ledger, Point, write_plan
from tests.chaos.fleet import Fleet

LEASE_S: Final = 6.0
CHANCE: Final = 0.02
FOR_SURE: Final = (
    Fault(point=Point.AFTER_CLAIM, action=Action.KILL_CHILD, times=1),
    Fault(point=Point.INSIDE_TOOL, action=Action.KILL_CHILD, times=1),
)
"""Faults that surely strike, so that even in the shortest storm a turn and a call have to be taken over."""
ACTIONS: Final = {
    Action.RAISE: 0.0,
    Action.HANG: 3.0,
    Action.KILL_CHILD: 0.0,
    Action.KILL_WORKER: 0.0,
    Action.STOP_CHILD: 2 * LEASE_S,
}


@dataclass(slots=True, kw_only=True)
class Storm:
    """A fleet in bad weather.

    Args:
        fleet: The fleet that it strikes.
        faults: The directory of the fleet's fault plan.
        lines: The directory in which workers record the lines at which they were killed.
        seed: Decides what strikes which process, and when.
        struck: How often each kind struck.
    """

    fleet: Fleet
    faults: Path
    lines: Path
    seed: int
    struck: Counter[str] = field(default_factory=Counter[str])
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311 - which process dies is no secret

    # --- kinds of weather

    def kill(self) -> None:
        """Send SIGKILL to a process that runs tools, to a coordinator or to a whole tool worker."""
        kinds = (self.fleet.children, self.fleet.children, self._coordinators, self._tool_workers)
        victims = self.chance.choice(kinds)()
        if victims:
            self.chance.choice(victims).kill()
            self.struck["kill"] += 1

    def stop(self) -> None:
        """Stop a worker and all its children with SIGSTOP, for twice the lease."""
        victims = self._coordinators() + self._tool_workers()
        if victims:
            worker = self.chance.choice(victims)
            family = [*worker.children(), worker]
            for process in family:
                process.suspend()
            threading.Timer(2 * LEASE_S, _resume, [family]).start()
            self.struck["stop"] += 1

    def flush(self) -> None:
        """Delete everything in Redis."""
        with Redis.from_url(self.fleet.stack.redis_url) as redis:  # pyright: ignore[reportUnknownMemberType]
            redis.flushall()  # pyright: ignore[reportUnknownMemberType]
        self.struck["flush"] += 1

    def restart_redis(self) -> None:
        """Send SIGKILL to Redis; it comes back with its append-only file."""
        for redis in self.fleet.redis():
            redis.kill()
            self.struck["restart_redis"] += 1

    def forget_redis(self) -> None:
        """Send SIGKILL to Redis; it comes back empty."""
        for redis in self.fleet.redis():
            redis.kill()
            # Remove all of it before the server is started again, which fails with a manifest whose files are missing.
            shutil.rmtree(self.fleet.stack.home / "valkey" / "appendonlydir", ignore_errors=True)
            self.struck["forget_redis"] += 1

    def stop_postgres(self) -> None:
        """Stop Postgres for up to two seconds, then end all its connections."""
        if not self.fleet.stack.database_url.startswith("postgresql"):
            return
        family = _postgres()
        for process in family:
            process.suspend()
        threading.Event().wait(self.chance.uniform(0, 2))
        _resume(family)
        _cut_connections(self.fleet.stack.database_url)
        self.struck["stop_postgres"] += 1

    def kill_at_lines(self) -> None:
        """From now on, let workers die at lines of their own code (``any_line``)."""
        (self.lines / "on").touch()

    def injure(self) -> None:
        """Choose other fault points; a fault strikes at each of them with a small chance."""
        points = self.chance.sample(list(Point), 8)
        plan = [self._fault(point) for point in points]
        write_plan(self.faults, [*FOR_SURE, *plan])

    # --- shared

    @property
    def fired(self) -> int:
        """How many faults struck at points of the protocol."""
        return len(Ledger(self.faults).fired())

    def clear(self) -> None:
        """Remove all faults, and let no more workers die at lines."""
        write_plan(self.faults, [])
        (self.lines / "on").unlink(missing_ok=True)
        self.struck["kill"] += len(list(self.lines.iterdir()))

    def _fault(self, point: Point) -> Fault:
        action = self.chance.choice(list(ACTIONS))
        return Fault(point=point, action=action, seconds=ACTIONS[action], chance=CHANCE)

    def _coordinators(self) -> list[psutil.Process]:
        return self.fleet.at_work("coordinator")

    def _tool_workers(self) -> list[psutil.Process]:
        return self.fleet.at_work("tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of weather: what it does, and the least and most seconds between two strikes."""

    strike: Callable[[Storm], None]
    every_s: tuple[float, float]


KINDS: Final = {
    "kill": Kind(strike=Storm.kill, every_s=(2, 2)),
    "lines": Kind(strike=Storm.kill_at_lines, every_s=(2, 2)),
    "faults": Kind(strike=Storm.injure, every_s=(1, 8)),
    "stop": Kind(strike=Storm.stop, every_s=(20, 40)),
    "flush": Kind(strike=Storm.flush, every_s=(30, 60)),
    "restart_redis": Kind(strike=Storm.restart_redis, every_s=(20, 40)),
    "forget_redis": Kind(strike=Storm.forget_redis, every_s=(40, 80)),
    "stop_postgres": Kind(strike=Storm.stop_postgres, every_s=(5, 40)),
}
USUAL: Final = tuple(kind for kind in KINDS if kind != "lines")
"""All kinds except ``lines``, for which workers are traced, which slows them down."""


class Weather:
    """Strikes a fleet from one thread for each kind of weather, for as long as a context lasts.

    Args:
        storm: The fleet and what can strike it.
        kinds: Names from :data:`KINDS`.
    """

    def __init__(self, storm: Storm, kinds: Sequence[str]) -> None:
        self._storm = storm
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._blow, args=(KINDS[kind],), daemon=True) for kind in kinds]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._storm.clear()

    def _blow(self, kind: Kind) -> None:
        pause_s = min(kind.every_s)
        while not self._over.wait(pause_s):
            pause_s = self._storm.chance.uniform(*kind.every_s)
            # The victim of one kind may be dead or unreachable because of another.
            with suppress(psutil.NoSuchProcess, RedisError, psycopg.OperationalError):
                kind.strike(self._storm)


def _resume(family: Sequence[psutil.Process]) -> None:
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.resume()


def _postgres() -> list[psutil.Process]:
    mine = psutil.Process().children(recursive=True)
    return [process for process in mine if process.name() == "postgres"]


def _cut_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
