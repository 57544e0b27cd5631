"""Which calls a person is asked about, and what follows from the answer or its absence: rules over snapshots."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness_worker.core.approvals import Answer, answer, ask, edited, next_expiry, resolve, waiting
from harness_worker.core.decisions import Decision
from harness_worker.core.opening import open_visit
from harness_worker.core.outcomes import DenialReason, ToolDenied, ToolFailure, content_of
from harness_worker.core.parking import park, rest
from harness_worker.core.progress import AskHooks, Dispatch, go_on
from harness_worker.core.records import Call, CallStatus
from harness_worker.core.registration.approval_policy import DeclaredApproval
from harness_worker.core.registration.tools import BoundArguments
from harness_worker.core.segments import next_segment
from harness_worker.ports import ignore
from harness_worker.wire import Approval, TurnStatus, rfc3339
from tests.unit.bad_rules import BAD_RULES
from tests.unit.builders import (
    DEADLINE,
    NOW,
    OWNER,
    TIMING,
    a_call,
    a_held_turn,
    a_turn,
    a_visit,
    a_write,
    ended,
    event_types,
    pending,
    snapshot,
)

UNASKED = Approval()
EXPIRY = NOW + TIMING.approval_s
ASKED = Approval(expires_at=EXPIRY)
AGREED = replace(ASKED, decision="approve", is_resolved=True)


def asked(call: Call, **said: Any) -> Call:  # noqa: ANN401 - any field's value
    """The call after a person was asked about it, with the answer if there is one."""
    return replace(call, approval=replace(ASKED, **said))


def parked(*calls: Call, **changes: Any) -> Any:  # noqa: ANN401 - any field's value
    """A snapshot of a turn that waits for a person."""
    turn = a_turn(status=TurnStatus.REQUIRES_ACTION, started_at=NOW, parked_at=NOW, wake_at=EXPIRY, fence=1)
    return snapshot(replace(turn, **changes), *calls)


def test_ask_asks_once_about_every_call_that_needs_it() -> None:
    """Nobody is asked about calls that need no approval, were asked about before, or will not run."""
    fresh, denied = a_write(approval=UNASKED), a_write(1, approval=UNASKED, outcome=_denial())
    changed = ask([fresh, denied, asked(a_write(2)), a_call(3)], now=NOW, approval_s=5.0)
    assert [(call.position, call.approval) for call in changed.calls] == [(0, Approval(expires_at=NOW + 5.0))]
    (event,) = changed.events
    assert event.type == "approval.requested"
    assert event.data == {
        "call_id": "0.0",
        "tool": "tool0",
        "arguments": {},
        "expires_at": "1970-01-01T00:16:45.000000Z",
    }


def test_ask_gives_each_person_the_time_of_the_tool() -> None:
    """Calls that are asked about together expire each by itself; one whose tool says nothing, as the setting says."""
    calls = [a_write(0, approval=UNASKED), a_write(1, approval=Approval(timeout_s=1.5)), a_write(2, approval=UNASKED)]
    changed = ask(calls, now=NOW, approval_s=5.0)
    assert [call.approval and call.approval.expires_at for call in changed.calls] == [NOW + 5.0, NOW + 1.5, NOW + 5.0]
    told = [event.data["expires_at"] for event in changed.events]
    assert told == [rfc3339(call.approval and call.approval.expires_at) for call in changed.calls]
    assert ask(changed.calls, now=NOW + 1, approval_s=5.0).calls == ()


def _denial() -> ToolDenied:
    return ToolDenied(call_id="0.1", tool_name="tool1", reason=DenialReason.BUDGET, details="")


def _sent(*calls: Call) -> list[int]:
    """The positions of the calls that are sent next; no call ends denied now, and no hook is asked."""
    segment = next_segment(a_held_turn(), calls, now=NOW)
    assert (segment.denied, segment.asked) == ((), ())
    return [call.position for call in segment.sent]


def test_next_segment_stops_before_what_waits_for_a_person() -> None:
    """In program order, calls before a waiting one are sent, and those after it wait, too."""
    first, second, third = a_write(), a_write(1, approval=UNASKED), a_write(2)
    assert _sent(first, second, third) == [0]
    assert _sent(second, third) == []
    agreed = replace(second, approval=AGREED)
    assert _sent(first, agreed, third) == [0, 1, 2]


def test_next_segment_holds_a_whole_wave_of_reads() -> None:
    """Reads that would run together wait together, including those of them that are denied."""
    assert _sent(a_call(), a_call(1, approval=UNASKED), a_call(2, outcome=_denial())) == []


def test_hooks_are_asked_before_a_person() -> None:
    """A person agrees to what would run, so hooks are first asked about all undecided calls of all waves."""
    turn = a_held_turn(step=1)
    calls = (a_write(hooked=True, approval=UNASKED), a_write(1, hooked=True), a_write(2, hooked=True, approval=UNASKED))
    decision = go_on(snapshot(turn, *calls), a_visit(turn), turn, calls)
    assert isinstance(decision.result, AskHooks)
    assert [call.position for call in decision.result.calls] == [0, 2]


def test_go_on_parks_before_a_call_that_needs_approval() -> None:
    """Nobody holds a parked turn, and it is due for a look when its first question expires.

    All questions are asked at once, and each is reported once.
    """
    turn = a_held_turn()
    calls = (a_write(approval=UNASKED), a_call(1, wave=1), a_write(2, approval=UNASKED))
    decision = go_on(snapshot(turn, *calls), a_visit(turn), turn, calls)
    assert decision.turn is not None
    assert (decision.turn.status, decision.turn.owner) == (TurnStatus.REQUIRES_ACTION, None)
    assert (decision.turn.wake_at, decision.turn.parked_at) == (EXPIRY, NOW)
    assert [call.position for call in waiting(decision.calls)] == [0, 2]
    assert event_types(decision) == ["approval.requested", "approval.requested", "turn.requires_action"]
    assert decision.events[-1].data == {"calls": ["0.0", "0.2"]}
    assert decision.result == Dispatch(turn=decision.turn, calls=(), nudge=False, remaining_s=0.0)


def test_park_that_met_a_nudge_is_looked_at_again() -> None:
    """An answer that came while the turn was held makes it due at once."""
    turn = a_held_turn(wakes=1)
    visit = a_visit(replace(turn, wakes=0))
    result = park(visit, turn, [a_write(approval=UNASKED)], now=NOW, approval_s=5.0)
    assert result.look_again
    assert result.turn.wake_at == NOW


def test_park_with_an_answer_it_could_not_act_on_does_not_wait() -> None:
    """If an answer brings arguments that nobody has checked yet, the turn is looked at again."""
    turn = a_held_turn()
    call = asked(a_write(), decision="approve", arguments={"n": 1})
    result = park(a_visit(turn), turn, [call], now=NOW, approval_s=5.0)
    assert (result.turn.status, result.turn.owner, result.turn.wake_at) == (TurnStatus.RUNNING, None, NOW)
    assert result.look_again
    assert result.events == ()


@pytest.mark.parametrize(
    ("said", "content", "told"),
    [
        ({"decision": "deny", "reason": "too dear"}, "denied: approval: too dear", "too dear"),
        ({"decision": "deny"}, "denied: approval: not approved", "not approved"),
    ],
)
def test_resolve_denies_with_the_reason(said: dict[str, Any], content: str, told: str) -> None:
    """The model reads the person's reason, and an event reports it."""
    changed = resolve([asked(a_write(), **said)], {}, now=NOW)
    (call,) = changed.calls
    assert call.outcome is not None
    assert content_of(call.outcome) == content
    assert call.status is CallStatus.PLANNED
    assert changed.events[0].data == {"call_id": "0.0", "decision": "deny", "reason": told}


def test_resolve_denies_what_nobody_answered_in_time() -> None:
    """A question that nobody answered counts as denied from its expiry on, and not before."""
    call = asked(a_write())
    assert resolve([call], {}, now=EXPIRY - 0.001).calls == ()
    changed = resolve([call], {}, now=EXPIRY)
    assert changed.calls[0].outcome is not None
    assert content_of(changed.calls[0].outcome) == "denied: approval: expired"
    assert [event.type for event in changed.events] == ["approval.resolved"]


def test_resolve_leaves_a_question_nobody_was_asked() -> None:
    """A call behind one that waits is not denied before anybody was asked about it."""
    assert resolve([a_write(approval=UNASKED), a_write(1)], {}, now=EXPIRY * 2).calls == ()


def test_resolve_lets_an_approved_call_run_as_it_is() -> None:
    """An approval changes nothing about the call, and is reported with its reason."""
    call = asked(a_write(), decision="approve", reason="fine")
    changed = resolve([call], {}, now=EXPIRY * 2)
    assert changed.calls == (replace(call, approval=replace(call.approval or ASKED, is_resolved=True)),)
    assert changed.events[0].data == {"call_id": "0.0", "decision": "approve", "reason": "fine"}
    assert resolve(changed.calls, {}, now=NOW).calls == ()


def test_resolve_runs_with_the_persons_arguments() -> None:
    """Checked arguments replace the model's; unchecked ones are left to the next visit."""
    call = asked(a_write(), decision="approve", arguments={"n": "1"})
    assert edited([call]) == (call,)
    assert resolve([call], {}, now=NOW).calls == ()
    changed = resolve([call], {"0.0": BoundArguments(values={"n": 1}, was_coerced=True)}, now=NOW)
    assert [(c.arguments, c.was_coerced, c.outcome) for c in changed.calls] == [({"n": 1}, True, None)]
    assert changed.events[0].data == {"call_id": "0.0", "decision": "approve", "arguments": {"n": 1}}


def test_resolve_denies_arguments_that_the_tool_refuses() -> None:
    """Arguments may fit the published schema and still be refused by the tool itself."""
    call = asked(a_write(), decision="approve", arguments={"n": 1})
    refused = ToolDenied(call_id="0.0", tool_name="tool0", reason=DenialReason.VALIDATION, details="n")
    assert resolve([call], {"0.0": refused}, now=NOW).calls[0].outcome == refused


def _answer(state: Any, call_id: str = "0.0", reason: str | None = None) -> Decision[bool]:  # noqa: ANN401 - a snapshot
    return answer(state, call_id=call_id, said=Answer(decision="approve", reason=reason))


def test_answer_is_written_and_wakes_the_turn() -> None:
    """The call's row has the answer, the turn is due at once, and its status no longer says that it waits."""
    decision = _answer(parked(asked(a_write())), reason="ok")
    assert decision.result
    assert decision.calls[0].approval == replace(ASKED, decision="approve", reason="ok")
    assert decision.turn is not None
    assert (decision.turn.wakes, decision.turn.wake_at, decision.turn.status) == (1, NOW, TurnStatus.RUNNING)


def test_answer_to_one_of_two_leaves_the_turn_waiting() -> None:
    """The turn's status says that it waits as long as any question is open."""
    decision = _answer(parked(asked(a_write()), asked(a_write(1))))
    assert decision.turn is not None
    assert decision.turn.status is TurnStatus.REQUIRES_ACTION


@pytest.mark.parametrize(
    "call",
    [
        a_write(),
        a_write(approval=UNASKED),
        asked(a_write(), decision="deny"),
        asked(a_write(), is_resolved=True),
        asked(pending(a_write())),
        asked(ended(a_write())),
        replace(a_write(), approval=Approval(expires_at=NOW)),
    ],
)
def test_answer_nobody_waits_for_changes_nothing(call: Call) -> None:
    """An answer is stale if the call was not asked about, or was answered, sent, ended or has expired."""
    assert _answer(parked(call)) == Decision(result=False)
    assert _answer(parked(asked(a_write())), "9.9") == Decision(result=False)


def test_answer_to_a_finished_turn_changes_nothing() -> None:
    """The turn's end has settled every call."""
    assert _answer(parked(asked(a_write()), status=TurnStatus.CANCELLED)) == Decision(result=False)


def test_look_at_a_parked_turn_changes_nothing() -> None:
    """A stray wake-up neither claims the turn nor emits an event; it only corrects the time of the next look."""
    assert rest(parked(asked(a_write()))) == Decision(result=None)
    pushed = parked(asked(a_write()), wake_at=NOW + 5)
    opened = open_visit(pushed, owner=OWNER, timing=TIMING, tools_of=ignore)
    assert opened == Decision(result=None, turn=replace(pushed.turn, wake_at=EXPIRY))


@pytest.mark.parametrize(
    "state",
    [
        parked(asked(a_write()), status=TurnStatus.RUNNING),
        parked(asked(a_write()), cancel_requested=True),
        parked(asked(a_write(), decision="approve")),
        parked(asked(a_write(), decision="approve"), asked(a_write(1))),
        replace(parked(asked(a_write())), now=EXPIRY),
    ],
)
def test_look_at_a_turn_that_has_something_to_do_goes_on(state: Any) -> None:  # noqa: ANN401 - a snapshot
    """A turn that was answered, expired or cancelled is claimed."""
    assert rest(state) is None


def test_wait_for_a_person_is_not_charged() -> None:
    """The turn's deadline is put off by as long as it was parked."""
    later = replace(parked(asked(a_write(), decision="approve")), now=NOW + 1_000.0)
    decision = open_visit(later, owner=OWNER, timing=TIMING, tools_of=ignore)
    assert decision.turn is not None
    assert (decision.turn.deadline_at, decision.turn.parked_at) == (DEADLINE + 1_000.0, None)
    assert event_types(decision) == ["approval.resolved"]
    assert decision.calls[0].deadline_at == DEADLINE + 1_000.0


def test_next_expiry_is_that_of_the_first_open_question() -> None:
    """Questions that were answered or not asked yet do not count."""
    sooner = replace(a_write(), approval=Approval(expires_at=NOW + 1))
    assert next_expiry([asked(a_write(1)), sooner, a_write(2)]) == NOW + 1
    assert next_expiry([a_write(approval=UNASKED), asked(a_write(1), decision="deny")]) is None


@pytest.mark.parametrize("rule", [len, str, *BAD_RULES])
def test_declared_approval_asks_when_in_doubt(rule: Any, caplog: pytest.LogCaptureFixture) -> None:  # noqa: ANN401
    """If a rule raises, or returns neither true nor false, a person is asked, which is logged."""
    assert DeclaredApproval(tool_name="refund", rule=rule)({"n": 11})
    assert "tool refund: approval" in caplog.text


@pytest.mark.parametrize(("n", "needs"), [(11, True), (9, False)])
def test_declared_approval_is_the_authors(n: int, needs: bool, caplog: pytest.LogCaptureFixture) -> None:
    """What a rule returns decides."""
    assert DeclaredApproval(tool_name="refund", rule=lambda a: a["n"] > 10)({"n": n}) is needs
    assert not caplog.text


def test_nobody_is_asked_about_a_call_that_will_not_run() -> None:
    """A call whose tool failed for good ends denied, and the turn does not wait for it."""
    failed_for_good = ToolFailure(call_id="0.0", tool_name="pay", error="no", retryable=False)
    first = ended(a_write(tool="pay"), failed_for_good)
    segment = next_segment(a_turn(), [first, a_write(1, tool="pay", approval=UNASKED)], now=NOW)
    assert next(content_of(call.outcome) for call in segment.denied if call.outcome).startswith("denied: blocked: ")


def test_persons_denial_stands() -> None:
    """The model reads the person's reason even if a gate would refuse the call by now."""
    failed_for_good = ToolFailure(call_id="0.0", tool_name="pay", error="no", retryable=False)
    first = ended(a_write(tool="pay"), failed_for_good)
    (denied,) = resolve([asked(a_write(1, tool="pay"), decision="deny", reason="mine")], {}, now=NOW).calls
    segment = next_segment(a_turn(), [first, denied], now=NOW)
    assert [call.outcome for call in segment.denied] == [denied.outcome]
