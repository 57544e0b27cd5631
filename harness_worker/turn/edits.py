"""Checks arguments that a person edited, as a model's are checked, and finds reads that may not share their wave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from harness_worker.core.approvals import Edit, edited
from harness_worker.core.gates import unknown_tool
from harness_worker.core.outcomes import DenialReason
from harness_worker.core.records import Call, CallStatus
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.text import clean_json
from harness_worker.core.waves import plan_waves
from harness_worker.errors import ArgumentsInvalid
from harness_worker.turn.planner import want_of


def check_edits(calls: Sequence[Call], agent: AgentSpec | None) -> Mapping[str, Edit] | None:
    """Check the edited arguments of answers, by call id.

    Returns:
        ``None`` if there are some, but the agent whose tools would check them is not served here.
    """
    given = edited(calls)
    if not given:
        return {}
    return None if agent is None else {call.call_id: _check(call, agent) for call in given}


def reads_apart(calls: Sequence[Call], agent: AgentSpec | None) -> frozenset[str]:
    """The reads that may not run beside earlier ones of their wave, because a hook or a person changed arguments.

    Args:
        calls: The calls of the turn as they will be run.
        agent: The agent whose tools say what a call touches. Without it, the reads of a wave with edited arguments run
            one by one.
    """
    reads = [call for call in calls if call.is_read and call.status is CallStatus.PLANNED]
    waves = {(call.step, call.wave) for call in reads if agent is not None or _is_edited(call)}
    parts = ([call for call in reads if (call.step, call.wave) == wave] for wave in waves)
    return frozenset(chain.from_iterable(_apart(part, agent) for part in parts))


def _is_edited(call: Call) -> bool:
    return call.approval is not None and call.approval.arguments is not None


def _apart(wave: Sequence[Call], agent: AgentSpec | None) -> Iterator[str]:
    if agent is None:
        return (call.call_id for call in wave)
    parts = plan_waves([want_of(call, agent) for call in wave], parallel=True)
    return (call.call_id for call, part in zip(wave, parts, strict=True) if part > 0)


def _check(call: Call, agent: AgentSpec) -> Edit:
    spec = agent.tool(call.tool)
    arguments: dict[str, Any] = dict(call.approval.arguments or {}) if call.approval is not None else {}
    if spec is None:
        return call.denied(DenialReason.VALIDATION, unknown_tool(call.tool, agent.tool_names))
    try:
        return spec.bind(clean_json(arguments))
    except ArgumentsInvalid as invalid:
        return call.denied(DenialReason.VALIDATION, f"the arguments given with the approval: {invalid}")
