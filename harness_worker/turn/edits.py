"""Checks arguments that a person edited, as a model's are checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness_worker.core.approvals import Edit, edited
from harness_worker.core.gates import unknown_tool
from harness_worker.core.outcomes import DenialReason
from harness_worker.core.records import Call
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.text import clean_json
from harness_worker.errors import ArgumentsInvalid


def check_edits(calls: Sequence[Call], agent: AgentSpec | None) -> Mapping[str, Edit] | None:
    """Check the edited arguments of answers, by call id.

    Returns:
        ``None`` if there are some, but the agent whose tools would check them is not served here.
    """
    given = edited(calls)
    if not given:
        return {}
    return None if agent is None else {call.call_id: _check(call, agent) for call in given}


def _check(call: Call, agent: AgentSpec) -> Edit:
    spec = agent.tool(call.tool)
    arguments: dict[str, Any] = dict(call.approval.arguments or {}) if call.approval is not None else {}
    if spec is None:
        return call.denied(DenialReason.VALIDATION, unknown_tool(call.tool, agent.tool_names))
    try:
        return spec.bind(clean_json(arguments))
    except ArgumentsInvalid as invalid:
        return call.denied(DenialReason.VALIDATION, f"the arguments given with the approval: {invalid}")
