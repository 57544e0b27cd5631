"""Runs turns in a storm: ``make chaos MINUTES=10 SEED=1``, or ``python -m tests.chaos.storm --help``.

Prints what happens, and as its last line one JSON object (:class:`tests.chaos.judge.Verdict`). Exits with 0 only if the
promise held, in a storm that killed processes, caused redeliveries and struck with other faults.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg

from harness_worker.adapters.redis.client import RedisClient
from harness_worker.testing.keys import keys_without_ttl
from harness_worker.testing.services import given_or_own_postgres
from tests.apps.chaos.app import ADDRESS_VARIABLE
from tests.chaos import any_line
from tests.chaos.client import Client
from tests.chaos.fleet import ROLES, Fleet, open_fleet
from tests.chaos.judge import Roughness, Verdict, judge
from tests.chaos.outside import Outside, service_outside
from tests.chaos.weather import KINDS, USUAL, Storm, Weather

SETTLE_S: Final = 120.0
VISIBILITY_S: Final = 4.0
"""Shorter than the slow tools take, so that copies of their messages are delivered while they run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The storm to run.

    Args:
        minutes: How long it lasts.
        turns: The storm ends earlier once this many turns were posted.
        seed: Decides what strikes which process, and which turns are slow.
        in_flight: How many turns run at the same time.
        weather: Kinds of weather, from :data:`tests.chaos.weather.KINDS`.
        one_in_lines: In weather ``lines``, workers die at one line of code in this many.
        database: ``postgres`` or ``sqlite``.
        beside: Roles of which one more worker runs beside the stack.
    """

    minutes: float
    turns: int | None = None
    seed: int = 1
    in_flight: int = 6
    weather: Sequence[str] = USUAL
    one_in_lines: int = 5
    database: str = "postgres"
    beside: Sequence[str] = ROLES


def storm(options: Options, tell: Callable[[str], None]) -> Verdict:
    """Run one storm over a new fleet."""
    with tempfile.TemporaryDirectory(prefix="storm-") as place, _database(options.database) as database_url:
        home, faults, lines, temporary = (Path(place) / name for name in ("home", "faults", "lines", "temporary"))
        for directory in (faults, lines, temporary):
            directory.mkdir()
        with service_outside() as outside:
            env = {
                ADDRESS_VARIABLE: outside.address,
                "HARNESS_FAULTS": str(faults),
                "HARNESS_VISIBILITY_TIMEOUT_S": str(VISIBILITY_S),
                "TMPDIR": str(temporary),
                **database_url,
                **(_dying_at_lines(options, lines) if "lines" in options.weather else {}),
            }
            verdict = _over(options, home, env, outside, tell)
    return verdict


def _over(options: Options, home: Path, env: dict[str, str], outside: Outside, tell: Callable[[str], None]) -> Verdict:
    others = set(_family())
    with open_fleet(home, env, beside=options.beside) as fleet:
        weather = Storm(fleet=fleet, faults=home.parent / "faults", lines=home.parent / "lines", seed=options.seed)
        client = Client(fleet.stack.gateway_url, seed=options.seed, in_flight=options.in_flight)
        tell(f"seed {options.seed}; {', '.join(options.weather)}; {options.in_flight} turns in flight")
        with Weather(weather, options.weather):
            client.post_while(_until(options, client, tell))
        tell(f"{client.posted} turns posted, {dict(weather.struck)}, {weather.fired} faults fired; the storm is over")
        stuck = client.await_all(SETTLE_S)
        later = client.look_again()
        keys = _keys_that_stay(fleet)
        client.close()
        log, family = fleet.log(), set(_family()) - others
    for turn_id in stuck:
        tell(f"stuck: {turn_id}")
    return judge(
        client.ended,
        later,
        outside,
        Roughness(
            posted=client.posted,
            kills=weather.struck["kill"],
            faults=weather.fired + weather.struck.total() - weather.struck["kill"],
            log=log,
            left_behind=[
                *keys,
                *_processes_that_stay(family),
                *_connections_that_stay(env),
                *_files_that_stay(Path(env["TMPDIR"])),
            ],
        ),
    )


def _until(options: Options, client: Client, tell: Callable[[str], None]) -> Callable[[], bool]:
    began = told = time.monotonic()

    def goes_on() -> bool:
        nonlocal told
        now = time.monotonic()
        if now - told > 15:
            told = now
            tell(f"{now - began:.0f} s: {client.posted} turns posted, {len(client.ended)} ended")
        return now - began < options.minutes * 60 and (options.turns is None or client.posted < options.turns)

    return goes_on


def _dying_at_lines(options: Options, told: Path) -> dict[str, str]:
    """The environment variables that make workers die at lines of their own code."""
    path = os.pathsep.join(filter(None, [str(Path(any_line.__file__).parent), os.environ.get("PYTHONPATH")]))
    chosen = {"KILL_SEED": str(options.seed), "KILL_ONE_IN": str(options.one_in_lines)}
    return {"PYTHONPATH": path, "KILL_LINES": str(told), **chosen}


@contextmanager
def _database(kind: str) -> Generator[dict[str, str]]:
    """The environment variables that choose an empty database; none for SQLite, the default."""
    if kind == "sqlite":
        yield {}
        return
    with given_or_own_postgres() as server:
        url = server.create_database()
        yield {"HARNESS_DATABASE_URL": url}
        server.drop_database(url)


def _keys_that_stay(fleet: Fleet) -> list[str]:
    client = RedisClient(fleet.stack.redis_url)
    keys = keys_without_ttl(client, pattern="harness:{*")
    client.disconnect()
    return [f"key without TTL: {key}" for key in keys]


def _family() -> list[psutil.Process]:
    """All descendants of this process; in a test process, the services of other tests are among them."""
    return psutil.Process().children(recursive=True)


def _processes_that_stay(family: Iterable[psutil.Process]) -> list[str]:
    stayed = [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    return [f"process: {process.pid} {process.name()}" for process in stayed if process.name() != "postgres"]


def _connections_that_stay(env: dict[str, str]) -> list[str]:
    url = env.get("HARNESS_DATABASE_URL")
    if url is None:
        return []
    with psycopg.connect(url) as connection:
        others = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        return [f"connection: {pid}" for (pid,) in connection.execute(others)]


def _files_that_stay(temporary: Path) -> list[str]:
    return [f"temporary file: {path.name}" for path in temporary.iterdir()]


def _options(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.storm", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--turns", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--in-flight", type=int, default=6)
    every = f"any of these, separated by commas: {','.join(KINDS)} (all but lines)"
    parser.add_argument("--weather", default=",".join(USUAL), help=every)
    parser.add_argument(
        "--one-in-lines", type=int, default=5, help="weather lines: a worker dies at one line in so many"
    )
    parser.add_argument("--database", choices=("postgres", "sqlite"), default="postgres")
    given = parser.parse_args(arguments)
    kinds = tuple(kind for kind in given.weather.split(",") if kind)
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        parser.error(f"unknown weather: {', '.join(unknown)}; choose from {', '.join(KINDS)}")
    fields: dict[str, Any] = {**vars(given), "weather": kinds}
    return Options(**fields)


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Run the storm that the arguments describe."""
    verdict = storm(_options(sys.argv[1:]), _tell)
    _tell(verdict.to_json())
    return 0 if verdict.is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
