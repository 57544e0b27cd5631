"""Arguments that a person gave for a call, checked like a model's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness_worker.core.approvals import Edit, edited
from harness_worker.core.outcomes import DenialReason, ToolDenied
from harness_worker.core.records import Call
from harness_worker.core.text import clean_json
from harness_worker.core.tools import AgentSpec
from harness_worker.errors import ArgumentsInvalid


def check_edits(calls: Sequence[Call], agent: AgentSpec | None) -> Mapping[str, Edit] | None:
    """What becomes of the arguments that persons gave, by call id.

    Returns:
        ``None`` if there are some and the agent, whose tools would check them, is not served here.
    """
    given = edited(calls)
    if not given:
        return {}
    return None if agent is None else {call.call_id: _check(call, agent) for call in given}


def _check(call: Call, agent: AgentSpec) -> Edit:
    spec = agent.tool(call.tool)
    arguments: dict[str, Any] = dict(call.approval.arguments or {}) if call.approval is not None else {}
    try:
        return _denied(call, f"unknown tool {call.tool}") if spec is None else spec.bind(clean_json(arguments))
    except ArgumentsInvalid as invalid:
        return _denied(call, f"the arguments given with the approval: {invalid}")


def _denied(call: Call, details: str) -> ToolDenied:
    return ToolDenied(call_id=call.call_id, tool_name=call.tool, reason=DenialReason.VALIDATION, details=details)
