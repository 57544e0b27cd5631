"""Hooks of a simulated agent: they take time, deny, rewrite and raise, and note what they are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from harness_worker.core.records import Call
from harness_worker.core.registration.hooks import (
    Deny,
    HookEvent,
    Hooks,
    PostToolUse,
    PreToolAnswer,
    PreToolUse,
    Rewrite,
    TurnEnd,
    TurnStart,
)


@dataclass(slots=True, kw_only=True)
class SimulatedHooks(Hooks):
    """Does at each point what the dice say.

    Args:
        random: The dice.
        pause: Where the process may be killed or stopped.
    """

    random: Random
    pause: Callable[[], None]
    posted: list[PostToolUse] = field(default_factory=list[PostToolUse])
    ended: Counter[str] = field(default_factory=Counter[str])

    def on_turn_start(self, event: TurnStart) -> None:
        """Raise now and then."""
        self._stumble(event)

    def on_pre_tool_use(self, event: PreToolUse) -> PreToolAnswer:
        """Deny a few, rewrite a few, raise now and then."""
        self._stumble(event)
        drawn = self.random.random()
        if drawn < 0.05:
            return Deny("not today")
        return Rewrite({**event.arguments, "key": self.random.choice("abxy")}) if drawn < 0.15 else None

    def on_post_tool_use(self, event: PostToolUse) -> None:
        """Note the outcome."""
        self.posted.append(event)
        self._stumble(event)

    def on_turn_end(self, event: TurnEnd) -> None:
        """Note it."""
        self.ended[event.turn_id] += 1
        self._stumble(event)

    def breaches(self, turn_id: str, calls: Sequence[Call], *, gate_was_flushed: bool) -> Iterator[str]:
        """What was told that is not so: an outcome that does not count, or anything twice."""
        known = {call.call_id: call for call in calls}
        told = [event for event in self.posted if event.turn_id == turn_id]
        if len({(event.call_id, event.attempt) for event in told}) < len(told) or self.ended[turn_id] > 1:
            yield f"told to hooks twice: {told}, {self.ended}"
        for event in told:
            call = known[event.call_id]
            if event.outcome != call.outcome and not (call.is_read and gate_was_flushed):
                yield f"{event.call_id}#{event.attempt} told to hooks as {event.outcome}, but it is {call.outcome}"

    def _stumble(self, event: HookEvent) -> None:
        self.pause()
        if self.random.random() < 0.1:
            raise ValueError(event)
