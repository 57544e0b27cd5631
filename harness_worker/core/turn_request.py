"""Making a turn from a request that no gateway has checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from harness_worker.core.budget import BudgetLimits
from harness_worker.core.records import Turn
from harness_worker.core.registration.agent_options import budget_problems
from harness_worker.errors import ConfigError
from harness_worker.validation import MAX_METADATA_CHARS, MAX_METADATA_PAIRS, MAX_SESSION_ID_CHARS, storable
from harness_worker.wire import Priority, TurnStatus

INPUT: Final = "input"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """A request for a turn, unchecked: whatever a caller wrote. ``None`` counts as absent, except for the input.

    Args:
        input: What the user said.
        session_id: The conversation; without it the turn begins a new one.
        budget: Limits below the agent's, by name.
        metadata: Strings to store with the turn.
        parallel: Whether calls may run side by side.
        system_prompt_override: Replaces the agent's system text.
        skill_context: Extra text for this turn.
    """

    input: Any
    session_id: Any = None
    budget: Any = None
    metadata: Any = None
    parallel: Any = None
    system_prompt_override: Any = None
    skill_context: Any = None


def queued_turn(  # noqa: PLR0913 - what a turn is made of, by name
    request: TurnRequest,
    *,
    turn_id: str,
    tenant: str,
    agent: str,
    caps: BudgetLimits,
    priority: Priority,
    called: str = INPUT,
) -> Turn:
    """The requested turn, ready to be stored.

    Args:
        request: The request.
        turn_id: The turn's id; also its session's id if the request names none.
        tenant: The tenant that owns it.
        agent: The name of the agent to ask.
        caps: The highest limits it may have.
        priority: Its priority.
        called: The caller's name for the input, for error messages.

    Raises:
        ConfigError: The request is invalid; the message lists everything that is wrong with it.
    """
    problems = "; ".join(_problems(request, called))
    if problems:
        raise ConfigError(problems)
    return Turn(
        id=turn_id,
        tenant=tenant,
        session_id=turn_id if request.session_id is None else request.session_id,
        agent=agent,
        status=TurnStatus.QUEUED,
        input=request.input,
        priority=priority,
        budget=caps.clamped(request.budget),
        metadata=dict(request.metadata or {}),
        parallel=request.parallel,
        system_prompt_override=request.system_prompt_override,
        skill_context=request.skill_context,
    )


def _problems(request: TurnRequest, called: str) -> Iterator[str]:
    yield from _text_problems(called, request.input)
    if request.session_id is not None:
        yield from _text_problems("session_id", request.session_id, longest=MAX_SESSION_ID_CHARS)
        if request.session_id == "":
            yield "session_id must not be empty; None begins a new session"
    if request.metadata is not None:
        yield from _metadata_problems(request.metadata)
    if request.parallel is not None and not isinstance(request.parallel, bool):
        yield f"parallel must be True or False, not {request.parallel!r}"
    for name in ("system_prompt_override", "skill_context"):
        if getattr(request, name) is not None:
            yield from _text_problems(name, getattr(request, name))
    if request.budget is not None:
        yield from budget_problems(request.budget)


def _metadata_problems(metadata: object) -> Iterator[str]:
    if not isinstance(metadata, Mapping):
        yield f"metadata must be a dict of strings, not {type(metadata).__name__}"
        return
    pairs = cast("Mapping[object, object]", metadata)
    if len(pairs) > MAX_METADATA_PAIRS:
        yield f"metadata must have at most {MAX_METADATA_PAIRS} pairs, not {len(pairs)}"
    for key, value in pairs.items():
        yield from _text_problems(f"metadata's key {_shown(key)}", key, longest=MAX_METADATA_CHARS)
        yield from _text_problems(f"metadata[{_shown(key)}]", value, longest=MAX_METADATA_CHARS)


def _text_problems(name: str, text: object, *, longest: int | None = None) -> Iterator[str]:
    if not isinstance(text, str):
        yield f"{name} must be a string, not {type(text).__name__}"
        return
    try:
        storable(text)
    except ValueError as error:
        yield f"{name} {error}"
    if longest is not None and len(text) > longest:
        yield f"{name} must have at most {longest} characters, not {len(text)}"


def _shown(key: object) -> str:
    return ascii(key)[:60]
