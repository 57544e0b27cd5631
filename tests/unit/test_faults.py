"""Faults for tests: how a plan is written, and how often it strikes."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_worker.errors import ConfigError, TransientError
from harness_worker.faults import Action, Fault, Faults, Ledger, Point, parse_plan, write_plan


def test_plan_says_where_what_how_long_how_likely_and_how_often() -> None:
    """Only the first two are needed; parts stand between semicolons or on lines of their own."""
    text = "after_effect=kill_child; in_reconciler=hang(8):0.25*3\nmid_stream=stop_worker(12)"
    assert parse_plan(text) == (
        Fault(point=Point.AFTER_EFFECT, action=Action.KILL_CHILD),
        Fault(point=Point.IN_RECONCILER, action=Action.HANG, seconds=8, chance=0.25, times=3),
        Fault(point=Point.MID_STREAM, action=Action.STOP_WORKER, seconds=12),
    )


@pytest.mark.parametrize("text", ["after_effect", "nowhere=raise", "after_effect=sing", "after_effect=raise(x)"])
def test_plan_that_makes_no_sense_is_refused_by_name(text: str) -> None:
    """The message holds the part that is wrong."""
    with pytest.raises(ConfigError, match=r"HARNESS_FAULTS: '"):
        parse_plan(text)


def test_plan_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    """A program that writes a plan gets the same faults."""
    faults = (
        Fault(point=Point.AFTER_GATE, action=Action.RAISE, chance=0.5, times=2),
        Fault(point=Point.BEFORE_ACK, action=Action.HANG, seconds=0.5),
    )
    write_plan(tmp_path, faults)
    assert parse_plan((tmp_path / "plan").read_text()) == faults


def test_fault_strikes_at_its_point_and_no_other_as_often_as_it_may(tmp_path: Path) -> None:
    """However many processes meet it; each strike is written down."""
    write_plan(tmp_path, [Fault(point=Point.AFTER_CLAIM, action=Action.RAISE, times=2)])
    processes = [Faults(tmp_path), Faults(tmp_path), Faults(tmp_path)]
    processes[0].strike(Point.AFTER_COMMIT)
    for process in processes[:2]:
        with pytest.raises(TransientError, match="injected at after_claim"):
            process.strike(Point.AFTER_CLAIM)
    processes[2].strike(Point.AFTER_CLAIM)
    assert [fired.point for fired in Ledger(tmp_path).fired()] == [Point.AFTER_CLAIM] * 2


def test_fault_that_is_never_likely_never_strikes(tmp_path: Path) -> None:
    """A chance of zero is off, and a directory without a plan has none."""
    faults = Faults(tmp_path)
    faults.strike(Point.AFTER_CLAIM)
    write_plan(tmp_path, [Fault(point=Point.AFTER_CLAIM, action=Action.RAISE, chance=0.0)])
    faults.strike(Point.AFTER_CLAIM)
    assert Ledger(tmp_path).fired() == []
