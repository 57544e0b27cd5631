"""Reports for people how a workload's sweep compares with the plain replay."""

from __future__ import annotations

from rich.table import Table

from harness_worker.wire import JsonObject


def sweep_table(found: JsonObject) -> Table:
    """A sweep, as :func:`~harness_worker.workloads.report.summary` returns it."""
    drawn = Table(title=f"{found['workload']}: {found['passed']}/{found['expected']} equal to the plain replay")
    drawn.add_column("what")
    drawn.add_column("found", justify="right")
    for what, value in (
        ("tasks run", str(found["tasks"])),
        ("calls → waves (at least)", f"{found['calls']} → {found['waves']} ({found['ideal_waves']})"),
        ("effects", str(found["effects"])),
        ("  missing", str(found["effects_missing"])),
        ("  extra", str(found["effects_extra"])),
        ("  out of order", str(found["effects_out_of_order"])),
        ("calls run again", str(found["attempts_repeated"])),
        ("seconds", f"{found['seconds']:.1f}"),
    ):
        drawn.add_row(what, value)
    return drawn
