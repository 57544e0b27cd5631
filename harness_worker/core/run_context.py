"""What a tool may know about the call it serves, and the deadline that it can ask about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineToken:
    """An absolute point on a monotonic clock.

    Args:
        at_s: The point, in seconds of ``clock``.
        clock: A monotonic clock, in seconds.
    """

    at_s: float
    clock: Callable[[], float]

    def remaining_s(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self.at_s - self.clock())

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return self.remaining_s() <= 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Passed to a tool that has a parameter ``ctx``.

    Args:
        turn_id: The turn the call belongs to.
        call_id: ``"{step}.{position}"``, unique in the turn.
        session_id: The conversation.
        tenant: On whose behalf the turn runs.
        attempt: Starts at 1; rises when the call is run again after a crash.
        idempotency_key: The same for all attempts of a call; an external effect must be keyed by it.
        deadline: When the call's time is over.
        fence: For a tool with a ``lock``, a number above that of every earlier holder, so that a resource can refuse a
            late one; else ``None``.
        agent: The agent whose turn it is.
        metadata: What the turn was posted with, such as its user: the model can neither see nor change it.
    """

    turn_id: str
    call_id: str
    session_id: str
    tenant: str
    attempt: int
    idempotency_key: str
    deadline: DeadlineToken
    fence: int | None = None
    agent: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)

    @classmethod
    def for_tests(cls, *, remaining_s: float = 60.0, **overrides: Any) -> RunContext:  # noqa: ANN401 - the fields
        """A context for calling a tool as a plain function; its clock stands still.

        Args:
            remaining_s: The time left until the deadline, in seconds.
            overrides: Values for other fields, by name.

        Raises:
            TypeError: There is no such field.
        """
        context = cls(
            turn_id="turn",
            call_id="0.0",
            session_id="session",
            tenant="default",
            attempt=1,
            idempotency_key="key",
            deadline=DeadlineToken(at_s=remaining_s, clock=lambda: 0.0),
            agent="agent",
        )
        return replace(context, **overrides)
