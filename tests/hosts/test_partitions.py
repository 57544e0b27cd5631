"""Hosts that are cut off from the others, continue alone, and come back: the promise holds."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from harness_worker.testing.waiting import wait_until
from tests.chaos.judge import Ended
from tests.hosts.fleet import Fleet, open_fleet

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]

BACK_TIMEOUT_S = 90.0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Generator[Fleet]:
    """Six hosts; the tests are skipped where the kernel forbids network namespaces."""
    opened = open_fleet(tmp_path_factory.mktemp("hosts"))
    try:
        ready = opened.__enter__()
    except OSError as forbidden:
        pytest.skip(f"no network namespaces here: {forbidden}")
    yield ready
    opened.__exit__(None, None, None)


def runs_on(host: str, tool: str, turn: dict[str, Any]) -> bool:
    """Whether that host started the turn's call of that tool, and the call is not known to have ended."""
    return any(
        call["tool"] == tool and call["outcome"] is None and (call["worker"] or "").startswith(f"tools@{host}/")
        for call in turn["calls"]
    )


def keeps_the_promise(fleet: Fleet, ended: list[Ended]) -> None:
    """Check that each turn completed, each effect matches its report, and nothing changed afterwards."""
    verdict = fleet.judged(ended)
    wrong = (verdict.effects_lost, verdict.effects_doubled, verdict.effects_forbidden, verdict.late_commits)
    assert (wrong, verdict.unsound) == ((0, 0, 0, 0), ()), verdict.to_json()
    print(verdict.to_json())  # noqa: T201 - the figures


def works_again(fleet: Fleet, host: str, sign: str) -> None:
    """Wait until the log of a host's worker has another ``sign`` of work, while turns continue."""
    known = fleet.log(host).count(sign)

    def has_worked() -> bool:
        fleet.ended(fleet.post("default", 4))
        return fleet.log(host).count(sign) > known

    wait_until(has_worked, f"{host} to work again", BACK_TIMEOUT_S)


@pytest.mark.parametrize("tool", ["send", "put"])
def test_tool_host_that_is_cut_off_harms_nothing(fleet: Fleet, tool: str) -> None:
    """The host is cut off during a write, ends it alone, and comes back with a result that is refused."""
    host = fleet.hosts["tools-1"]
    ids = fleet.post("slow", 8)

    def is_writing() -> bool:
        return any(runs_on(host.name, tool, fleet.turn(turn_id)) for turn_id in ids)

    wait_until(is_writing, f"{host.name} to {tool}", 60, interval_s=0.05)
    host.cut()
    try:
        ended = fleet.ended(ids)
    finally:
        host.join()
    works_again(fleet, host.name, "succeeded")
    keeps_the_promise(fleet, ended)
    lost = [call for each in ended for call in each.turn["calls"] if call["attempt"] > 1 or call["is_error"]]
    assert lost, "the cut cost nothing: it did not strike a call"


def test_coordinator_host_that_is_cut_off_harms_nothing(fleet: Fleet) -> None:
    """It is cut off during a model call: others take its turns over, and what it would commit is refused."""
    host = fleet.hosts["coordinator-1"]
    ids = fleet.post("watched", 8)
    wait_until(lambda: all(fleet.turn(turn_id)["status"] == "running" for turn_id in ids), "the turns to be driven", 30)
    host.cut()
    try:
        ended = fleet.ended(ids)
    finally:
        host.join()
    works_again(fleet, host.name, "Task turn.advance")
    keeps_the_promise(fleet, ended)
    events = [event["type"] for each in ended for event in each.events]
    assert "turn.redelivered" in events, "the cut cost nothing: it did not strike a visit"
