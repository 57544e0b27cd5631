"""What a fork, a turn that goes on from a step of another one, begins with (ADR 34).

All of it is copied, because the origin may be removed any day (``harness prune``). Nothing that is copied ever changes:
the messages and calls of complete steps, and the ended turns before the origin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import JSON, Insert, Row, and_, bindparam, cast, exists, insert, literal, null, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from api_gateway.problems import Problem, invalid_at
from api_gateway.requests.turns import BudgetRequest, ForkRequest, TurnRequest
from harness_worker.schema import messages, past_messages, past_turns, sessions, tool_calls, turns
from harness_worker.sessions import IS_BEHIND, PAST_MESSAGES, PAST_TURNS

_MINE: Final = (turns.c.id == bindparam("turn_id"), turns.c.tenant == bindparam("tenant"))
_ITS_SESSION: Final = select(turns.c.session_id).where(*_MINE).scalar_subquery()
_HOLD: Final = (
    select(sessions.c.id)
    .where(sessions.c.tenant == bindparam("tenant"), sessions.c.id == _ITS_SESSION)
    .with_for_update(read=True, key_share=True)
)
"""Keeps the session from being removed meanwhile, but allows others to add turns to it."""

_ORIGIN: Final = select(turns).where(*_MINE)
_ROLES: Final = select(messages.c.role).where(messages.c.turn_id == bindparam("turn_id")).order_by(messages.c.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A request to fork a turn.

    Args:
        turn_id: The turn to fork.
        request: From which step on, and what to change.
    """

    turn_id: str
    request: ForkRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The turn that is forked, and the part of it that its fork gets.

    Args:
        row: Its row.
        step: The first step that is the fork's own.
        message_count: How many of its messages come before that step.
        request: The request for the fork: what was not changed is the origin's, except for the priority.
    """

    row: Row[Any]
    step: int
    message_count: int
    request: TurnRequest

    @property
    def told(self) -> dict[str, Any]:
        """What the fork's first event says of the origin."""
        return {"forked_from": {"turn_id": self.row.id, "step": self.step}}

    @property
    def columns(self) -> dict[str, Any]:
        """What the fork's row has of the origin. A fork from step 0 is prepared afresh."""
        return {
            "forked_from": self.row.id,
            "first_step": self.step,
            "step": self.step,
            "message_count": self.message_count,
            "preparation": _untried(self.row.preparation) if self.step else None,
        }

    def copies(self, turn_id: str) -> Iterator[Insert]:
        """Statements that copy to the fork the origin's messages but the first, its calls, and its session's past."""
        said = (messages.c.turn_id == self.row.id, messages.c.position > 0, messages.c.position < self.message_count)
        yield _copy(messages, select(messages).where(*said), turn_id)
        still_equal = and_(tool_calls.c.idempotent, ~self._changed_since()).label("idempotent")
        is_no_turn = cast(null(), JSON).label("delegation")  # of a call of an agent, only the result is copied
        anew = {"idempotent": still_equal, "delegation": is_no_turn}
        columns = (anew.get(column.name, column) for column in tool_calls.c)
        calls = select(*columns).where(tool_calls.c.turn_id == self.row.id, tool_calls.c.step < self.step)
        yield _copy(tool_calls, calls, turn_id)
        if self.row.number > 1 or self.row.forked_from is not None:
            before = {**_session_of(self.row), "before_number": self.row.number}
            yield _copy(past_turns, PAST_TURNS.params(before), turn_id, back=self.row.number)
            yield _copy(past_messages, PAST_MESSAGES.params(before), turn_id, back=self.row.number)

    def _changed_since(self) -> Any:  # noqa: ANN401 - an SQL expression
        """Whether the origin wrote afterwards: then an equal call is no longer a repeat (docs/reference/gates.md)."""
        later = tool_calls.alias("later")
        writes = or_(later.c.effect.is_(None), later.c.effect != "READ_ONLY")
        return exists().where(
            later.c.turn_id == self.row.id, later.c.step >= self.step, later.c.deadline_at.is_not(None), writes
        )


def _untried(preparation: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What the origin was prepared with, without when it last tried to sum up: the fork has tried nothing yet."""
    return None if preparation is None else {name: kept for name, kept in preparation.items() if name != "tried_at"}


async def origin_of(connection: AsyncConnection, tenant: str, fork: Fork) -> Origin:
    """The turn to fork, which cannot be removed until the transaction ends.

    Raises:
        Problem: 404 ``not_found``; 409 ``session_busy``: a turn before it has not ended; 422 ``invalid_request``: it
            cannot be forked from that step.
    """
    named = {"tenant": tenant, "turn_id": fork.turn_id}
    if (await connection.execute(_HOLD, named)).one_or_none() is None:
        raise Problem("not_found", f"there is no turn {fork.turn_id!r}")
    # Before the row, which then has what the replies seen here were asked with: one commit writes both.
    roles = (await connection.execute(_ROLES, named)).scalars().all()
    row = (await connection.execute(_ORIGIN, named)).one()
    if (await connection.execute(IS_BEHIND, {**_session_of(row), "before_number": row.number})).scalar_one():
        detail = f"a turn before {row.id} in its session has not ended, so its history is not known yet: fork it later"
        raise Problem("session_busy", detail)
    step = fork.request.from_step
    count = _messages_before(step, roles)
    if count is None:
        raise invalid_at(["body", "from_step"], _no_such_step(row.id, roles))
    return Origin(row=row, step=step, message_count=count, request=_request_of(row, fork.request))


def _messages_before(step: int, roles: Sequence[str]) -> int | None:
    """How many messages come before a step; ``None`` if there is no such step, or what comes before is incomplete."""
    spoken = [position for position, role in enumerate(roles) if role == "assistant"]
    if step < len(spoken):
        return spoken[step]
    return len(roles) if step == len(spoken) and roles[-1] == "user" else None


def _no_such_step(turn_id: str, roles: Sequence[str]) -> str:
    steps = list(roles).count("assistant")
    last = steps if roles[-1] == "user" else steps - 1
    why = "what comes before a step must be complete"
    return f"turn {turn_id} has {steps} steps; from_step may be 0 to {last} now, because {why}"


def _request_of(row: Row[Any], given: ForkRequest) -> TurnRequest:
    """The fork as a post would ask for it.

    The system text and the budget are inherited only with the agent; the priority is not inherited. A limit that a
    later version has stored and that this one does not know is left out.
    """
    is_same = given.agent in (None, row.agent)
    budget: dict[str, Any] = row.budget if is_same else {}
    kept = {name: budget[name] for name in BudgetRequest.model_fields if name in budget}
    wanted = given.budget.model_dump(exclude_none=True) if given.budget is not None else {}
    override = row.system_prompt_override if is_same else None
    return TurnRequest(
        agent=_first(given.agent, row.agent),
        input=_first(given.input, row.input),
        budget=BudgetRequest(**{**kept, **wanted}),
        metadata=_first(given.metadata, row.metadata),
        priority=given.priority,
        webhook=given.webhook,
        system_prompt_override=_first(given.system_prompt_override, override),
        skill_context=row.skill_context,
        parallel=_first(given.parallel, row.parallel),
    )


def _first(given: Any, kept: Any) -> Any:  # noqa: ANN401 - any field's value
    return kept if given is None else given


def _session_of(row: Row[Any]) -> dict[str, Any]:
    return {"of_tenant": row.tenant, "of_session": row.session_id}


def _copy(table: Any, rows: Any, turn_id: str, *, back: int = 0) -> Insert:  # noqa: ANN401 - SQL
    """A statement that adds the rows to the table as the turn's; if ``back`` is given, it reduces their ``number``."""
    found = rows.subquery("found")
    new: dict[str, Any] = {"turn_id": literal(turn_id)}
    if back:
        new["number"] = found.c.number - back
    names = [column.name for column in table.c]
    return insert(table).from_select(names, select(*(new.get(name, found.c.get(name)) for name in names)))
