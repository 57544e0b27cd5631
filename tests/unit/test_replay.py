"""ReplayControl: the model asking twice, told from the journal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_worker.core.doubt import unknown
from harness_worker.core.outcomes import (
    DenialReason,
    ToolArtifactReference,
    ToolDenied,
    ToolFailure,
    ToolOutcome,
    ToolTimeout,
)
from harness_worker.core.recall import Recall
from harness_worker.core.records import Call
from harness_worker.core.replay import (
    after_calls,
    after_step,
    duplicate_of,
    fingerprint,
    key_for,
    repeats,
)
from tests.unit.builders import a_call, a_write, ended, failed, ok, pending


def asked(position: int = 0, *, n: int = 1, **changes: Any) -> Call:  # noqa: ANN401 - any field's value
    """A call of an idempotent read."""
    return a_call(position, tool="get", idempotent=True, arguments={"n": n}, **changes)


def saved(position: int = 0, *, n: int = 1, **changes: Any) -> Call:  # noqa: ANN401 - any field's value
    """A call of an idempotent write."""
    return a_write(position, tool="save", idempotent=True, arguments={"n": n}, **changes)


def denied(call: Call) -> Call:
    """The call, ended without having run."""
    outcome = ToolDenied(call_id=call.call_id, tool_name=call.tool, reason=DenialReason.BUDGET, details="")
    return ended(call, outcome)


def doubt(call: Call) -> Call:
    """The call, ended without anybody knowing how."""
    return ended(call, unknown(call, "ended somehow"))


AGAIN = asked(9)
TIMEOUT = ToolTimeout(call_id="0.0", tool_name="get", deadline_s=1.0)
REFERENCE = ToolArtifactReference(
    call_id="0.0", tool_name="get", artifact_id="art_1", summary="s", url="u", size_bytes=1, elapsed_ms=1.0
)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([], None),
        ([ended(asked())], "0.0"),
        ([ended(asked(), REFERENCE)], "0.0"),
        ([ended(asked(), failed(asked()))], None),
        ([ended(asked(), TIMEOUT)], None),
        ([denied(asked())], None),
        ([pending(asked())], None),
        ([ended(asked(n=2))], None),
        ([ended(a_call(0, tool="get", arguments={"n": 1}))], None),
        ([ended(asked()), ended(asked(1, n=2)), ended(a_call(2))], "0.0"),
        ([ended(asked()), ended(a_write(1))], None),
        ([ended(asked()), pending(a_write(1))], None),
        ([ended(asked()), denied(a_write(1))], "0.0"),
        ([ended(asked()), ended(a_write(1), failed(a_write(1)))], None),
        ([ended(asked()), a_write(1)], "0.0"),
        ([ended(asked()), ended(a_call(1, effect=None))], None),
        ([ended(a_write(0)), ended(asked(1))], "0.1"),
    ],
)
def test_idempotent_call_is_a_duplicate_of_an_earlier_success(before: list[Call], expected: str | None) -> None:
    """Only of a success, with equal arguments, and if no other write was dispatched that may change the answer."""
    assert duplicate_of(after_calls(Recall(), before), AGAIN) == expected


def test_call_of_any_other_tool_is_never_a_duplicate() -> None:
    """A mail may legitimately be sent twice."""
    sent = a_write(0, tool="send")
    assert duplicate_of(after_calls(Recall(), [ended(sent)]), replace(sent, position=1)) is None


def test_write_is_no_other_write_to_its_equals() -> None:
    """An idempotent write that succeeded is not needed again, unless another write came between."""
    assert duplicate_of(after_calls(Recall(), [ended(saved())]), saved(2)) == "0.0"
    assert duplicate_of(after_calls(Recall(), [ended(saved()), ended(saved(1, n=2))]), saved(2)) is None


def test_arguments_are_compared_canonically() -> None:
    """The order of keys and a point with nothing but zeros behind it mean nothing; the tool's name does."""
    assert fingerprint("get", {"a": 1, "b": [2]}) == fingerprint("get", {"b": [2], "a": 1})
    assert fingerprint("get", {"a": 1}) != fingerprint("got", {"a": 1})
    assert repeats(a_call(0, tool="t", arguments={"a": 1, "b": 2}), a_call(1, tool="t", arguments={"b": 2, "a": 1}))
    assert not repeats(asked(), asked(n=2))
    assert fingerprint("get", {"a": 25, "b": [{"c": -0.0}]}) == fingerprint("get", {"a": 25.0, "b": [{"c": 0}]})
    assert fingerprint("get", {"a": 25}) != fingerprint("get", {"a": 25.5})
    assert fingerprint("get", {"a": 1}) != fingerprint("get", {"a": True})
    assert len(fingerprint("get", {"a": "\ud800"})) == 32


def test_tool_that_failed_for_good_is_blocked() -> None:
    """The first such failure is remembered, other failures are not."""
    fatal = ToolFailure(call_id="0.1", tool_name="tool1", error="no", retryable=False)
    recall = after_calls(Recall(), [ended(a_call(0), failed(a_call(0))), ended(a_call(1), fatal)])
    assert recall.blocked == {"tool1": "0.1"}
    later = a_call(0, step=1, tool="tool1")
    assert after_calls(recall, [ended(later, fatal)]).blocked == {"tool1": "0.1"}


def test_repeat_of_a_doubtful_call_takes_its_key_over() -> None:
    """Until it is repeated, with equal arguments only; a repeat that ends in doubt keeps the key for the next."""
    first = a_write(0, tool="pay", arguments={"n": 1})
    recall = after_calls(Recall(), [doubt(first)])
    repeat = replace(first, step=1, idempotency_key="turn:1.0")
    assert key_for(recall, repeat) == "turn:0.0"
    assert key_for(recall, replace(repeat, arguments={"n": 2})) == "turn:1.0"
    taken = replace(repeat, idempotency_key="turn:0.0")
    assert key_for(after_calls(recall, [ended(taken)]), replace(repeat, step=2, idempotency_key="k")) == "k"
    assert key_for(after_calls(recall, [doubt(taken)]), replace(repeat, step=2, idempotency_key="k")) == "turn:0.0"
    assert key_for(after_calls(recall, [denied(repeat)]), replace(repeat, step=2, idempotency_key="k")) == "turn:0.0"


def test_equal_steps_running_are_counted() -> None:
    """The same calls with the same results; anything else begins the count again; a step without calls says nothing."""
    first = after_step(Recall(), [ended(a_call(0))])
    second = after_step(first, [ended(a_call(0, step=1), ok(a_call(0), "done"))])
    assert (first.repeats, second.repeats) == (1, 2)
    assert after_step(second, []).repeats == 2
    assert after_step(second, [ended(a_call(0, step=2), ok(a_call(0), "other"))]).repeats == 1
    assert after_step(second, [ended(a_call(0, step=2, arguments={"n": 1}))]).repeats == 1
    assert after_step(second, [ended(a_call(0, step=2)), ended(a_call(1, step=2))]).repeats == 1


def test_equal_artifacts_are_equal_results() -> None:
    """Their ids differ each time."""
    once = after_step(Recall(), [ended(a_call(0), REFERENCE)])
    again = after_step(once, [ended(a_call(0, step=1), replace(REFERENCE, artifact_id="art_2"))])
    assert again.repeats == 2
    assert after_step(once, [ended(a_call(0, step=1), replace(REFERENCE, summary="t"))]).repeats == 1


def test_call_without_an_outcome_is_no_result() -> None:
    """A step that was cut short can be told too."""
    assert after_step(Recall(), [pending(a_call(0))]).repeats == 1


_N = st.integers(0, 1)
_OUTCOMES: dict[str, ToolOutcome | None] = {"ok": None, "failed": failed(asked()), "timeout": TIMEOUT}


def _history() -> st.SearchStrategy[list[Call]]:
    kinds = st.tuples(st.sampled_from(["get", "save", "write", "denied"]), _N, st.sampled_from(sorted(_OUTCOMES)))
    return st.lists(kinds, max_size=12).map(lambda drawn: [_call(i, *each) for i, each in enumerate(drawn)])


def _call(position: int, kind: str, n: int, how: str) -> Call:
    made = {"get": asked, "save": saved}.get(kind)
    call = made(position, n=n) if made else a_write(position, tool="write", arguments={"n": n})
    return denied(call) if kind == "denied" else ended(call, _OUTCOMES[how])


@settings(max_examples=500)
@given(history=_history(), cut=st.integers(0, 12), n=_N, write=st.booleans())
def test_replay_table_holds_for_any_history(history: list[Call], cut: int, n: int, write: bool) -> None:
    """Folded at once or step by step, the answer is the table's: a success, and as many other writes since as then."""
    last = saved(99, n=n) if write else asked(99, n=n)
    split = after_calls(after_calls(Recall(), history[:cut]), history[cut:])
    assert split == after_calls(Recall(), history)
    ran = [call for call in history if not isinstance(call.outcome, ToolDenied)]
    others = [sum(not c.is_read and not repeats(c, last) for c in ran[:place]) for place in range(len(ran) + 1)]
    successes = [
        call.call_id
        for place, call in enumerate(ran)
        if repeats(call, last) and call.outcome == ok(call) and others[place] == others[-1]
    ]
    assert duplicate_of(split, last) == (successes[-1] if successes else None)
