"""Turns in a storm (``tests/chaos/storm.py``): a short one for every run, long ones for the acceptance tests."""

from __future__ import annotations

import pytest

from tests.chaos.storm import Options, storm

KILLS = ("kill", "faults")


@pytest.mark.timeout(300)
def test_promise_holds_in_a_short_storm() -> None:
    """Every two seconds a process is killed, and faults strike at random: turns end, and effects are as reported."""
    verdict = storm(Options(minutes=0.4, seed=7, database="sqlite", beside=(), weather=KILLS), print)
    assert verdict.is_kept, verdict.to_json()
    assert verdict.ended > 3


@pytest.mark.acceptance
@pytest.mark.timeout(3_600)
def test_promise_holds_for_a_thousand_turns_under_kills() -> None:
    """A thousand turns of three waves; every two seconds a tool process, coordinator or whole worker is killed."""
    verdict = storm(Options(minutes=55, turns=1_000, weather=KILLS), print)
    assert verdict.is_kept, verdict.to_json()
    assert verdict.ended == 1_000


@pytest.mark.acceptance
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["stop", "flush", "restart_redis", "forget_redis", "stop_postgres"])
def test_promise_holds_in_one_kind_of_weather(kind: str) -> None:
    """Workers stop for two leases; Redis is flushed, killed, or comes back empty; Postgres stops, then hangs up."""
    verdict = storm(Options(minutes=2, seed=3, weather=("kill", kind)), print)
    assert verdict.is_kept, verdict.to_json()


@pytest.mark.acceptance
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", [1, 2])
def test_promise_holds_whatever_line_a_worker_dies_at(seed: int) -> None:
    """One in three of the lines that coordinators and tool workers run kills the first worker to reach it."""
    verdict = storm(Options(minutes=6, seed=seed, weather=("lines", "faults"), one_in_lines=3), print)
    assert verdict.is_kept, verdict.to_json()
    assert verdict.kills > 60
