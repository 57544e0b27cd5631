"""How a turn came by its answer, by the calls that gave it something."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness_worker.core.outcomes import DenialReason, ToolArtifactReference, ToolDenied, ToolOutcome, ToolTimeout
from harness_worker.core.recall import Recall
from harness_worker.core.registration.registry import Registry
from harness_worker.core.replay import after_step
from harness_worker.core.strategy import strategy_of
from harness_worker.errors import ConfigError
from tests.unit.builders import a_call, ended, failed

ID: dict[str, Any] = {"call_id": "0.0", "tool_name": "tool0"}


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((), "direct_answer"),
        ((None,), "tool_assisted"),
        (("retrieval",), "retrieval_augmented"),
        (("web",), "web_augmented"),
        ((None, "retrieval"), "retrieval_augmented"),
        (("web", "retrieval", None), "web_augmented"),
    ],
)
def test_strategy_is_the_first_that_was_used(kinds: tuple[str | None, ...], expected: str) -> None:
    """The web before one's own documents, these before any other tool; whatever the order of the calls."""
    recall = after_step(Recall(), [ended(a_call(i, kind=kind)) for i, kind in enumerate(kinds)])
    assert strategy_of(recall).value == expected


def test_steps_add_up() -> None:
    """What an early step used is still known at the end."""
    recall = after_step(Recall(), [ended(a_call(kind="web"))])
    recall = after_step(recall, [ended(a_call(step=1))])
    assert recall.used == ("web", "tool")


@pytest.mark.parametrize(
    "outcome",
    [
        failed(a_call()),
        ToolTimeout(**ID, deadline_s=1.0),
        ToolDenied(**ID, reason=DenialReason.BUDGET, details="used up"),
    ],
)
def test_call_that_gave_nothing_counts_for_nothing(outcome: ToolOutcome) -> None:
    """Failed, out of time, or denied."""
    assert after_step(Recall(), [replace(ended(a_call(kind="web")), outcome=outcome)]).used == ()


def test_long_output_counts() -> None:
    """A call whose output was stored aside succeeded."""
    stored = ToolArtifactReference(**ID, artifact_id="art_1", summary="s", url="u", size_bytes=1, elapsed_ms=1.0)
    assert after_step(Recall(), [ended(a_call(kind="retrieval"), stored)]).used == ("retrieval",)


def test_recall_of_an_older_version_used_nothing() -> None:
    """A turn under way during an upgrade is read as it is."""
    assert Recall.from_record({"done": {}, "warned": ["max_steps"]}).used == ()


def test_other_kinds_are_refused() -> None:
    """They are refused when the tool is declared."""
    with pytest.raises(ConfigError, match=r"tool 'find': kind must be None, 'retrieval' or 'web', not 'mail'"):
        Registry().tool("find", kind="mail")(lambda: None)  # type: ignore[arg-type]
