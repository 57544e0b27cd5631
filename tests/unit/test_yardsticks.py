"""What the harness is measured against: ``make bench`` starts workers that have to know each of its tasks."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.benchmarks import bare, journaled


@pytest.mark.parametrize("canvas", [bare, journaled])
def test_workers_of_a_yardstick_serve_what_it_sends(canvas: ModuleType) -> None:
    """Every task of the canvas is one of its application's."""
    name = canvas.__name__.rpartition(".")[2]
    assert {f"{name}.{task}" for task in ("first", "second", "third", "read", "write")} <= {*canvas.app.tasks}
