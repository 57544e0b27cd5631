"""Which calls of a plan come next: one wave of reads or of calls of agents, or a run of sequential calls."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import takewhile

from harness_worker.core.approvals import is_undecided
from harness_worker.core.gates import Gates
from harness_worker.core.lifecycle import end_call
from harness_worker.core.outcomes import ToolOutcome
from harness_worker.core.records import Call, CallStatus, Turn, in_order
from harness_worker.core.registration.tools import ToolSpec
from harness_worker.core.replay import repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The part of a plan that comes next.

    Args:
        denied: Calls that end denied now, because it is their wave's turn.
        sent: Calls to send, with the idempotency keys to run them with.
        asked: Calls that hooks must be asked about before they can be sent; if there are any, nothing is sent.
    """

    denied: tuple[Call, ...]
    sent: tuple[Call, ...]
    asked: tuple[Call, ...]


def next_segment(
    turn: Turn,
    calls: Sequence[Call],
    *,
    now: float,
    apart: AbstractSet[str] = frozenset(),
    tools: Sequence[ToolSpec] | None = None,
) -> Segment:
    """The next segment of a turn without open calls; empty if nothing of the plan is left.

    A denied call ends when its wave comes: together with the reads of its wave, or after the calls before it have
    ended. A wave that waits for approval is sent as a whole once all of it is decided, and nothing after it is sent
    earlier; nobody is asked about a call that will not run anyway.

    Args:
        turn: The turn.
        calls: Its calls.
        now: Seconds since the epoch.
        apart: The ids of reads that may not run beside those before them in their wave; each starts its next part.
        tools: The agent's tools; ``None`` if they are not known here.
    """
    gates = Gates.of(turn, calls, now=now, tools=tools)
    held = {(call.step, call.wave) for call in calls if is_undecided(call) and _refusal(gates, call) is None}
    denied: list[Call] = []
    chosen: list[Call] = []
    for call in in_order(call for call in calls if call.status is CallStatus.PLANNED):
        if _starts_another(call, chosen) or (call.step, call.wave) in held:
            break
        if chosen and call.call_id in apart:
            break
        refusal = _refusal(gates, call)
        if refusal is None and not _must_wait(call, chosen):
            chosen.append(call if call.hooked else replace(call, idempotency_key=gates.key_for(call)))
            gates = gates.passed(call)
        elif refusal is not None and _ends_now(call, chosen):
            denied.append(end_call(call, refusal, now=now))
        else:
            break
    return _segment(tuple(denied), chosen)


def _starts_another(call: Call, chosen: Sequence[Call]) -> bool:
    """Whether the call belongs to another segment: a wave is sent by itself, and ends a run of sequential calls."""
    return bool(chosen) and call.wave != chosen[-1].wave and (call.runs_beside or chosen[-1].runs_beside)


def _refusal(gates: Gates, call: Call) -> ToolOutcome | None:
    """Why the call will not run. A person's denial is final; gates that follow the hooks count only once these ran."""
    if call.answered is not None:
        return call.answered
    return gates.before_hooks(call) if call.hooked else gates.refusal(call)


def _must_wait(call: Call, chosen: Sequence[Call]) -> bool:
    """Whether it can be judged only once the call that it repeats has ended."""
    return call.idempotent and any(repeats(call, earlier) for earlier in chosen)


def _ends_now(call: Call, chosen: Sequence[Call]) -> bool:
    """Whether nothing that is yet to happen can precede its end or change its reason."""
    return not chosen or (call.wave == chosen[-1].wave and not chosen[-1].hooked)


def _segment(denied: tuple[Call, ...], chosen: Sequence[Call]) -> Segment:
    sent = tuple(takewhile(lambda call: not call.hooked, chosen))
    return Segment(denied=denied, sent=sent, asked=() if sent else tuple(call for call in chosen if call.hooked))
