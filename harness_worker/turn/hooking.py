"""Calling an application's hooks, each guarded, in the order of their declaration. Nothing here raises."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from harness_worker.core.outcomes import ToolOutcome
from harness_worker.core.records import Turn
from harness_worker.core.registration.author_code import Raised, attempt, shown
from harness_worker.core.registration.hooks import (
    HookEvent,
    Hooks,
    PostToolUse,
    TurnEnd,
    TurnStart,
    UsageReport,
    overrides,
)
from harness_worker.turn.tickets import Ticket

log = logging.getLogger(__name__)


class HookCaller:
    """Calls hooks; what they raise is logged, counted and swallowed.

    Args:
        on_failure: Called with the point of each failure; several threads may call it at once.
    """

    def __init__(self, on_failure: Callable[[str], None]) -> None:
        self._on_failure = on_failure

    def tell(self, hooks: Iterable[Hooks], point: str, event: HookEvent) -> None:
        """Call every hook at a point that expects no answer."""
        for hook in hooks:
            if overrides(hook, point):
                self.ask(hook, point, event)

    def ask(self, hook: Hooks, point: str, event: HookEvent) -> Any:  # noqa: ANN401 - whatever the author's code says
        """Call one hook and return its answer; ``None`` if it raises."""
        answer = attempt(lambda: getattr(hook, point)(event))
        if isinstance(answer, Raised):
            self.failed(hook, point, event, shown(answer.error))
            return None
        return answer

    def failed(self, hook: Hooks, point: str, event: HookEvent, what: str, *, so: str = "is ignored") -> None:
        """Log and count a hook that failed; ``so`` says with what consequence."""
        self._on_failure(point)
        name = f"{type(hook).__name__}.{point}"
        log.warning("hook %s failed in turn %s and %s: %s", name, event.turn_id, so, what)


def turn_fields(turn: Turn) -> dict[str, str]:
    """The fields that all events of a turn have."""
    return {"turn_id": turn.id, "session_id": turn.session_id, "tenant": turn.tenant, "agent": turn.agent}


def tell_start(caller: HookCaller, hooks: Iterable[Hooks], turn: Turn) -> None:
    """Tell hooks that a turn starts."""
    caller.tell(hooks, "on_turn_start", TurnStart(**turn_fields(turn), input=turn.input, metadata=turn.metadata))


def tell_used(
    caller: HookCaller, hooks: Iterable[Hooks], ticket: Ticket, outcome: ToolOutcome, *, attempt: int
) -> None:
    """Tell hooks the outcome of a call that ran."""
    used = PostToolUse(
        turn_id=ticket.turn_id,
        session_id=ticket.session_id,
        tenant=ticket.tenant,
        agent=ticket.agent,
        call_id=ticket.call_id,
        tool=ticket.tool,
        arguments=ticket.arguments,
        attempt=attempt,
        outcome=outcome,
    )
    caller.tell(hooks, "on_post_tool_use", used)


def tell_usage(caller: HookCaller, hooks: Iterable[Hooks], turn: Turn) -> None:
    """Tell hooks what an ended turn used."""
    caller.tell(hooks, "on_usage", UsageReport(**turn_fields(turn), used=turn.used, budget=turn.budget))


def tell_end(caller: HookCaller, hooks: Iterable[Hooks], turn: Turn) -> None:
    """Tell hooks that a turn has ended."""
    over = TurnEnd(
        **turn_fields(turn),
        status=turn.status,
        stop_reason=turn.stop_reason,
        output_text=turn.output_text,
        error=turn.error,
        decision=turn.decision,
        citations=turn.citations,
    )
    caller.tell(hooks, "on_turn_end", over)
