"""The gates that a planned call must pass before it is dispatched (docs/reference/gates.md).

In order: replay, blocked, the hooks (in ``turn/pre_hooks.py``, because they run the application's code), validation,
budget and time. The first that refuses gives the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from harness_worker.core.budget import DEFAULT_LIMITS
from harness_worker.core.outcomes import DenialReason, ToolDenied, ToolOutcome
from harness_worker.core.recall import Recall
from harness_worker.core.records import Call, Turn
from harness_worker.core.registration.tools import ToolSpec
from harness_worker.core.replay import after_calls, after_dispatch, duplicate_of, key_for
from harness_worker.wire import READ_ARTIFACT

TOOL_FLOOR_S = 5.0
"""A tool is not started with less time left than this, unless its own limit is shorter (docs/reference/budgets.md)."""

MODEL_FLOOR_S = 10.0
"""A model is not asked again with less time left than this."""

FLOORS_OF_S = DEFAULT_LIMITS.timeout_s
"""The floors apply to turns with at least this much time; those of a shorter turn are proportionally lower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """The facts by which the next call is judged.

    Args:
        recall: What earlier calls mean for it.
        calls_left: How many more calls the budget allows.
        max_tool_calls: How many calls the budget allows in all.
        remaining_s: The turn's remaining time, in seconds.
        floor_s: How much time must be left for a tool to be started, in seconds.
        is_spent: Whether the turn's tokens or dollars are used up, so that no agent may be called.
        tools: The agent's tools; ``None`` if they are not known here.
    """

    recall: Recall
    calls_left: int
    max_tool_calls: int
    remaining_s: float
    floor_s: float
    is_spent: bool = False
    tools: Sequence[ToolSpec] | None = None

    @classmethod
    def of(cls, turn: Turn, calls: Sequence[Call], *, now: float, tools: Sequence[ToolSpec] | None = None) -> Gates:
        """The gates of a turn whose open step has these calls."""
        return cls(
            recall=after_calls(turn.recall, (call for call in calls if not call.collected)),
            calls_left=turn.budget.max_tool_calls - turn.used.tool_calls,
            max_tool_calls=turn.budget.max_tool_calls,
            remaining_s=turn.deadline_at - now,
            floor_s=floor_of(turn, TOOL_FLOOR_S),
            is_spent=turn.budget.is_spent(turn.spent),
            tools=tools,
        )

    def refusal(self, call: Call) -> ToolOutcome | None:
        """Why the call may not run; ``None`` if it may."""
        return self.before_hooks(call) or call.outcome or self._outdated(call) or self._without_room(call)

    def before_hooks(self, call: Call) -> ToolDenied | None:
        """The refusal of a gate that comes before the hooks; ``None`` if the hooks must be asked."""
        if call.outcome is None and (earlier := duplicate_of(self.recall, call)) is not None:
            said = f"equal to call {earlier}, which succeeded; nothing was changed since, so its result still stands"
            return call.denied(DenialReason.DUPLICATE, said)
        if (failed := self.recall.blocked.get(call.tool)) is not None:
            said = f"{call.tool} failed for good in call {failed}; it does not run again in this turn"
            return call.denied(DenialReason.BLOCKED, said)
        return None

    def passed(self, call: Call) -> Gates:
        """The gates for the next call, once ``call`` is dispatched."""
        return replace(self, recall=after_dispatch(self.recall, call), calls_left=self.calls_left - 1)

    def key_for(self, call: Call) -> str:
        """The idempotency key to run the call with."""
        return key_for(self.recall, call)

    def _outdated(self, call: Call) -> ToolDenied | None:
        """A denial if a deployment has removed its tool or changed the tool's kind; never for the artifact reader."""
        if self.tools is None or call.tool == READ_ARTIFACT:
            return None
        spec = next((tool for tool in self.tools if tool.name == call.tool), None)
        if spec is None:
            return call.denied(DenialReason.VALIDATION, unknown_tool(call.tool, [tool.name for tool in self.tools]))
        if (spec.is_read, spec.delegation is None) != (call.is_read, call.delegation is None):
            return call.denied(DenialReason.VALIDATION, f"{call.tool} was deployed as another kind of tool meanwhile")
        return None

    def _without_room(self, call: Call) -> ToolDenied | None:
        if self.calls_left <= 0:
            return call.denied(DenialReason.BUDGET, f"all {self.max_tool_calls} tool calls of this turn are used")
        if self.is_spent and call.is_delegated:
            return call.denied(DenialReason.BUDGET, f"nothing of this turn's tokens or dollars is left for {call.tool}")
        floor_s = min(self.floor_s, call.timeout_s)
        if self.remaining_s < floor_s:
            left = f"{max(0.0, self.remaining_s):.1f} s are left of this turn"
            said = f"{left}; {call.tool} is not started with less than {floor_s:g} s"
            return call.denied(DenialReason.DEADLINE, said)
        return None


def unknown_tool(name: str, tools: Iterable[str]) -> str:
    """The message for a call of a tool that is not one of ``tools``."""
    return f"unknown tool {name}; available: {', '.join(tools) or 'none'}"


def floor_of(turn: Turn, floor_s: float) -> float:
    """A floor in proportion to the turn's time limit, in seconds."""
    return floor_s * min(1.0, turn.budget.timeout_s / FLOORS_OF_S)
