"""Every fault at every boundary of the protocol: the turn ends correctly, and soon."""

from __future__ import annotations

import statistics
import time
from collections.abc import Generator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from harness_worker.faults import Action, Fault, Ledger, Point, write_plan
from harness_worker.testing.postgres import PostgresServer
from harness_worker.testing.waiting import wait_until
from tests.apps.chaos.app import ADDRESS_VARIABLE
from tests.chaos.fleet import Fleet, open_fleet
from tests.chaos.judge import DOUBTS
from tests.chaos.outside import Outside, service_outside
from tests.e2e.soundness import check_sound

pytestmark = pytest.mark.acceptance

RECOVERY_S: Final = 15.0
SECONDS: Final = {Action.HANG: 8.0, Action.STOP_CHILD: 12.0, Action.STOP_WORKER: 12.0}
"""Longer than a lease; stops last for twice the lease."""

LOST_WAKE_UP: Final = Fault(point=Point.BEFORE_PUBLISH, action=Action.RAISE, times=1)
"""Leaves a turn overdue, so that the reconciler finds it."""


class Bench:
    """A fleet of two workers of each role, struck by one fault at a time."""

    def __init__(self, fleet: Fleet, faults: Path, outside: Outside) -> None:
        self.fleet = fleet
        self.faults = faults
        self.outside = outside
        self.http = httpx2.Client(base_url=fleet.stack.gateway_url, timeout=30, trust_env=False)
        self.recoveries: dict[str, float] = {}
        self._hangs_until = 0.0

    def run(self, fault: Fault) -> dict[str, Any]:
        """Let the fault strike a new turn once, and return that turn after it has ended."""
        self._await_whole()
        extra = [LOST_WAKE_UP] if fault.point is Point.IN_RECONCILER else []
        (self.faults / "fired").unlink(missing_ok=True)
        write_plan(self.faults, [fault, *extra])
        try:
            turn = self._end(self._post())
            strikes = [each for each in Ledger(self.faults).fired() if each.point is fault.point]
        finally:
            write_plan(self.faults, [])
        assert strikes, f"{fault} never struck"
        if fault.action is Action.HANG:
            self._hangs_until = strikes[0].at + fault.seconds
        self.recoveries[f"{fault.point} {fault.action}"] = self._silence_s(turn["id"], strikes[0].at)
        return turn

    def _silence_s(self, turn_id: str, since: float) -> float:
        """The turn's longest silence, in seconds, from the strike to its end."""
        times = [datetime.fromisoformat(event["at"]).timestamp() for event in self.events(turn_id)]
        later = [since, *(at for at in times if at > since)]
        return max((after - before for before, after in pairwise(later)), default=0.0)

    def events(self, turn_id: str) -> list[dict[str, Any]]:
        """All events of a turn."""
        return self.http.get(f"/v1/turns/{turn_id}/events", params={"limit": 1_000}).json()["data"]

    def _post(self) -> str:
        body = {"agent": "stormy", "input": "go", "metadata": {"script": "watched"}}
        return self.http.post("/v1/turns", json=body).raise_for_status().json()["id"]

    def _end(self, turn_id: str) -> dict[str, Any]:
        def ended() -> dict[str, Any] | None:
            turn = self.http.get(f"/v1/turns/{turn_id}", params={"include": "messages"}).json()
            return turn if turn.get("finished_at") else None

        return wait_until(ended, f"turn {turn_id} to end", 60, interval_s=0.1)

    def _await_whole(self) -> None:
        """Wait until all four workers live, none is stopped, and no thread hangs, which may outlast the turn."""

        def is_whole() -> bool:
            workers = [self.fleet.workers(role) for role in ("coordinator", "tools")]
            is_still = time.time() < self._hangs_until or any(
                each.status() == "stopped" for some in workers for each in some
            )
            return all(len(some) == 2 for some in workers) and not is_still

        wait_until(is_whole, "all workers to be back", 60)


@pytest.fixture(scope="module")
def bench(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Generator[Bench]:
    """The fleet; its recovery times are printed at the end."""
    place = tmp_path_factory.mktemp("matrix")
    faults = place / "faults"
    faults.mkdir()
    with service_outside() as outside:
        env = {
            ADDRESS_VARIABLE: outside.address,
            "HARNESS_FAULTS": str(faults),
            "HARNESS_DATABASE_URL": postgres_server.create_database(),
        }
        with open_fleet(place / "home", env) as fleet:
            bench = Bench(fleet, faults, outside)
            yield bench
            bench.http.close()
    _print(bench.recoveries)


def _print(recoveries: dict[str, float]) -> None:
    for cell, seconds in sorted(recoveries.items(), key=lambda each: each[1]):
        print(f"{cell:<40} {seconds:6.2f} s")  # noqa: T201 - the figures are what this is for
    if recoveries:
        median, most = statistics.median(recoveries.values()), max(recoveries.values())
        print(f"{len(recoveries)} faults, recovery median {median:.2f} s, max {most:.2f} s")  # noqa: T201


@pytest.mark.timeout(150)
@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("point", list(Point))
def test_turn_ends_right_whatever_strikes_it(bench: Bench, point: Point, action: Action) -> None:
    """The turn completes with one result a call and each effect as reported, and is never silent for 15 seconds."""
    began = time.time()
    turn = bench.run(Fault(point=point, action=action, seconds=SECONDS.get(action, 1.0), times=1))
    check_sound(turn, bench.events(turn["id"]), [])
    assert turn["status"] == "completed", turn["error"] or turn["stop_reason"]
    for call in turn["calls"]:
        effects = bench.outside.effects[turn["id"], call["call_id"]]
        is_doubtful = call["content"].startswith(DOUBTS)
        is_failed_tool = call["outcome"] == "ToolFailure" and not is_doubtful
        if call["tool"] == "peek":
            continue
        allowed = {0, 1} if is_doubtful or is_failed_tool else {int(call["outcome"] == "ToolExecutionResult")}
        assert effects in allowed, call
        assert not (is_doubtful and call["tool"] == "send"), "a tool that knows a repeat by its key is run again"
    recovery_s = bench.recoveries[f"{point} {action}"]
    assert recovery_s < RECOVERY_S, f"silent for {recovery_s:.1f} s, {time.time() - began:.1f} s in all"
