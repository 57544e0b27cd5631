"""Gate 3: hooks decide about calls whose wave has come (docs/reference/gates.md)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from harness_worker.core.outcomes import DenialReason, ToolDenied
from harness_worker.core.records import Call, Turn
from harness_worker.core.registration.author_code import Raised, attempt, shown, words_of
from harness_worker.core.registration.content import to_json
from harness_worker.core.registration.hooks import Deny, Hooks, PreToolUse, Rewrite, overrides
from harness_worker.core.registration.tools import AgentSpec, Arguments, ToolSpec
from harness_worker.core.text import clean_text, cut_text
from harness_worker.turn.hooking import HookCaller, turn_fields
from harness_worker.turn.planner import bound

POINT = "on_pre_tool_use"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreHooks:
    """Asks an agent's hooks about calls of a turn.

    Args:
        caller: Calls the hooks.
        turn: The turn.
        agent: The turn's agent.
        threshold_chars: The longest reason for a denial, in characters.
    """

    caller: HookCaller
    turn: Turn
    agent: AgentSpec
    threshold_chars: int

    def answered(self, calls: Sequence[Call]) -> tuple[Call, ...]:
        """The calls as the hooks leave them: denied, with other arguments, or as they were."""
        return tuple(replace(self._decided(call), hooked=False) for call in calls)

    def _decided(self, call: Call) -> Call:
        spec = self.agent.tool(call.tool)
        if spec is None:  # a deployment has removed the tool: the call is denied when its wave comes
            return call
        for hook in self.agent.hooks:
            if overrides(hook, POINT):
                call = self._after(hook, call, spec)
                if isinstance(call.outcome, ToolDenied) and call.outcome.reason is DenialReason.PRE_HOOK:
                    return call
        return call

    def _after(self, hook: Hooks, call: Call, spec: ToolSpec) -> Call:
        """The call after one hook has decided about it."""
        arguments = copy.deepcopy(dict(call.arguments))
        event = PreToolUse(**turn_fields(self.turn), call_id=call.call_id, tool=call.tool, arguments=arguments)
        match self.caller.ask(hook, POINT, event):
            case None:
                return call
            case Deny(reason=str(reason)):
                details = cut_text(clean_text(reason), self.threshold_chars)
                return replace(call, outcome=call.denied(DenialReason.PRE_HOOK, details))
            case Rewrite(arguments=Mapping() as wanted):
                return self._rewritten(hook, event, call, spec, wanted)
            case answer:
                self.caller.failed(hook, POINT, event, f"it may return Deny, Rewrite or None, not {shown(answer)}")
                return call

    def _rewritten(
        self, hook: Hooks, event: PreToolUse, call: Call, spec: ToolSpec, wanted: Mapping[str, object]
    ) -> Call:
        """The call with a hook's arguments; denied if JSON cannot hold them, as it must not run with the old ones.

        Raises:
            MemoryError: There is too little memory to read them, which says nothing about them.
        """
        plain = attempt(lambda: to_json(dict(wanted)))
        if isinstance(plain, Raised):
            if isinstance(plain.error, MemoryError):
                raise plain.error
            problem = f"arguments that JSON cannot hold: {clean_text(words_of(plain.error))}"
            self.caller.failed(hook, POINT, event, problem, so="denies the call")
            return replace(call, outcome=call.denied(DenialReason.PRE_HOOK, f"a hook gave {problem}"))
        return bound(call, spec, cast("Arguments", plain))
