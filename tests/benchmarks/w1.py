"""W1 on the harness beside the bare Celery canvas, in one run: ``make bench``.

Both systems have eight coordinator threads and eight tool processes, and both are up at the same time; turns alternate
between them, so that what else the machine does hits both. A turn counts from the moment its client starts it to the
moment its client knows that it ended: for the harness with its row inserted and every event in SQL, for the canvas with
nothing kept at all. Printed, and written to ``build/bench.json``: medians, ratios, and what a turn costs in Redis
commands, messages and, on Postgres, SQL transactions that write.

``make bench WHAT=floor`` measures in the harness's place what its commits and gate commands alone cost (``journaled``).
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from harness_worker.testing.postgres import PostgresServer
from harness_worker.testing.services import given_or_own_postgres
from tests.benchmarks.systems import System, Work, bare_canvas, harness, journaled_canvas

WARM_UP: Final = 10
ROUNDS: Final = 12
ALONE: Final = 5
LOADED: Final = 60
IN_FLIGHT: Final = 16
FLOOR: Final = "floor"
RESULT: Final = Path("build/bench.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One comparison. Latencies in milliseconds, throughput in turns a second, ratios harness to bare canvas."""

    latency_ms: float
    bare_latency_ms: float
    latency_ratio: float
    throughput: float
    bare_throughput: float
    throughput_ratio: float
    redis_commands_a_turn: float
    bare_redis_commands_a_turn: float
    messages_a_turn: float
    bare_messages_a_turn: float
    sql_transactions_a_turn: float | None


def alone_ms(system: System, turns: int) -> list[float]:
    """How long each of some turns takes, one after the other."""
    return [_timed(lambda: _one(system)) * 1000 for _ in range(turns)]


def loaded_s(system: System, turns: int) -> float:
    """How long some turns take together, with several in flight."""

    def work() -> None:
        waiting: list[Callable[[], None]] = []
        for _ in range(turns):
            if len(waiting) >= IN_FLIGHT:
                waiting.pop(0)()
            waiting.append(system.start())
        for wait in waiting:
            wait()

    return _timed(work)


def compare(ours: System, bare: System) -> Measured:
    """Both systems, in alternating rounds."""
    systems = (ours, bare)
    for system in systems:
        alone_ms(system, WARM_UP)
    counted = [system.work() for system in systems]
    alone: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for index, system in enumerate(systems):
            alone[index] += alone_ms(system, ALONE)
    used = [_a_turn(before, system.work(), ROUNDS * ALONE) for system, before in zip(systems, counted, strict=True)]
    rates: list[list[float]] = [[], []]
    for _ in range(ROUNDS // 3):
        for index, system in enumerate(systems):
            rates[index].append(LOADED / loaded_s(system, LOADED))
    return _measured(alone, rates, used)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Used:
    """What one turn costs."""

    commands: float
    messages: float
    transactions: float | None


def _a_turn(before: Work, after: Work, turns: int) -> _Used:
    written = None if before.transactions is None else (after.transactions or 0) - before.transactions
    return _Used(
        commands=round((after.commands - before.commands) / turns, 1),
        messages=round((after.messages - before.messages) / turns, 1),
        transactions=None if written is None else round(written / turns, 1),
    )


def _measured(alone: list[list[float]], rates: list[list[float]], used: list[_Used]) -> Measured:
    latency, bare_latency = (statistics.median(samples) for samples in alone)
    throughput, bare_throughput = (statistics.median(samples) for samples in rates)
    return Measured(
        latency_ms=round(latency, 1),
        bare_latency_ms=round(bare_latency, 1),
        latency_ratio=round(latency / bare_latency, 3),
        throughput=round(throughput, 1),
        bare_throughput=round(bare_throughput, 1),
        throughput_ratio=round(throughput / bare_throughput, 3),
        redis_commands_a_turn=used[0].commands,
        bare_redis_commands_a_turn=used[1].commands,
        messages_a_turn=used[0].messages,
        bare_messages_a_turn=used[1].messages,
        sql_transactions_a_turn=used[0].transactions,
    )


def _one(system: System) -> None:
    system.start()()


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def report(title: str, name: str, measured: Measured) -> str:
    """The figures of one comparison as lines, the system's under its name."""
    m = measured
    return (
        f"{title:<24}{name:>17}   bare canvas   ratio\n"
        f"  one turn, median ms   {m.latency_ms:17.1f} {m.bare_latency_ms:13.1f} {m.latency_ratio:7.2f}\n"
        f"  turns a second        {m.throughput:17.1f} {m.bare_throughput:13.1f} {m.throughput_ratio:7.2f}\n"
        f"  Redis commands a turn {m.redis_commands_a_turn:17.1f} {m.bare_redis_commands_a_turn:13.1f}\n"
        f"  messages a turn       {m.messages_a_turn:17.1f} {m.bare_messages_a_turn:13.1f}\n"
        f"  SQL transactions      {_shown(m.sql_transactions_a_turn):>17} {'none':>13}\n"
    )


def _shown(figure: float | None) -> str:
    return "uncounted" if figure is None else f"{figure:.1f}"


@contextmanager
def measured_system(chosen: str, server: PostgresServer, home: Path) -> Generator[System]:
    """What is compared with the bare canvas: the harness on a database, or the least it could cost."""
    if chosen == FLOOR:
        with journaled_canvas(server.create_database()) as least:
            yield least
        return
    url = server.create_database() if chosen == "postgres" else f"sqlite:///{home / 'harness.db'}"
    with harness(url, home) as ours:
        yield ours


def main() -> None:
    """Measure on both databases, or what the command line names; print, write the result."""
    chosen = sys.argv[1:] or ["postgres", "sqlite"]
    if unknown := sorted({*chosen} - {"postgres", "sqlite", FLOOR}):
        sys.exit(f"nothing to measure by the name {unknown[0]}: choose of postgres, sqlite, {FLOOR}")
    results: dict[str, object] = {"cores": os.cpu_count(), "load": os.getloadavg()[0]}
    with given_or_own_postgres() as server, bare_canvas() as bare, tempfile.TemporaryDirectory() as directory:
        for one in chosen:
            home = Path(directory) / one
            home.mkdir()
            sys.stdout.write(f"Measuring on {one}, about a minute …\n")
            with measured_system(one, server, home) as system:
                measured = compare(system, bare)
            results[one] = asdict(measured)
            sys.stdout.write(report(f"W1 on {one}", system.name, measured))
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(results, indent=2) + "\n")
    sys.stdout.write(f"written to {RESULT}\n")


if __name__ == "__main__":
    main()
