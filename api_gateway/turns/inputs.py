"""A person's answer to a turn that waits: the single transaction behind ``POST …/inputs``.

It only stores the answer and makes the turn due for a look; the workers act on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from sqlalchemy import Row, case, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from api_gateway.database import AnyRow, writer_of
from api_gateway.problems import Problem, invalid
from api_gateway.requests.turns import InputRequest
from api_gateway.turns.answers import Turn
from api_gateway.turns.arguments import argument_problems
from api_gateway.turns.calls import asking_below
from api_gateway.turns.rows import TURN_COLUMNS, question_of
from api_gateway.turns.store import with_calls
from harness_worker.schema import agents, db_now, tool_calls, turns
from harness_worker.wire import FINAL_STATUSES, Approval, TurnStatus

Decided = Literal["approve", "deny"]

_CALL_KEY: Final = (tool_calls.c.turn_id, tool_calls.c.step, tool_calls.c.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """An open question: the call's row, and its approval."""

    call: Row[Any]
    question: Approval


class Inputs:
    """Takes the answers to one tenant's turns."""

    def __init__(self, engine: AsyncEngine, tenant: str) -> None:
        self._writer = writer_of(engine)
        self._tenant = tenant

    async def add(self, turn_id: str, said: InputRequest) -> tuple[Turn, str] | None:
        """Store the answer to a turn's open questions, and make the turn due at once.

        Returns:
            The turn with the answer, and its priority; ``None`` if there is no such turn.

        Raises:
            Problem: 409 ``turn_finished``, 409 ``stale_input``, 422 ``invalid_request``; nothing is written then.
        """
        async with self._writer.begin() as connection:
            turn = await self._locked(connection, turn_id)
            if turn is None:
                return None
            if turn.status in FINAL_STATUSES:
                raise Problem("turn_finished", f"turn {turn_id} is {turn.status}; post a new turn instead")
            if turn.cancel_requested:
                raise Problem("stale_input", f"turn {turn_id} is being cancelled; nothing that waits in it will run")
            open_ones = await _open_questions(connection, turn_id)
            if not open_ones:
                raise await _nothing_asked(connection, turn)
            answers = _answers(turn_id, said, open_ones)
            if said.arguments is not None:
                await _check(connection, turn.agent, open_ones[str(said.call_id)].call.tool, said.arguments)
            row = await _write(connection, turn_id, answers, goes_on=len(answers) == len(open_ones))
            return await with_calls(connection, row), row.priority

    async def _locked(self, connection: AsyncConnection, turn_id: str) -> AnyRow | None:
        """Some columns of the turn, locked in the order of every transaction: the turn first, then its calls."""
        found = select(turns.c.id, turns.c.status, turns.c.agent, turns.c.cancel_requested, turns.c.parked_below)
        found = found.where(turns.c.id == turn_id, turns.c.tenant == self._tenant).with_for_update(key_share=True)
        return (await connection.execute(found)).one_or_none()


async def _open_questions(connection: AsyncConnection, turn_id: str) -> dict[str, _Open]:
    asked = select(tool_calls, db_now().label("now"))
    asked = asked.where(tool_calls.c.turn_id == turn_id, tool_calls.c.approval.is_not(None))
    rows = (await connection.execute(asked.order_by(*_CALL_KEY))).all()
    found = [(row, question) for row in rows if (question := question_of(row)) is not None]
    return {
        f"{row.step}.{row.position}": _Open(call=row, question=question)
        for row, question in found
        if question.expires_at is not None and row.now < question.expires_at
    }


def _answers(turn_id: str, said: InputRequest, open_ones: Mapping[str, _Open]) -> Sequence[_Open]:
    """The questions as answered: one by a decision, all of them by a message, which denies them."""
    if said.decision is None:
        return [_answered(each, "deny", said.message, None) for each in open_ones.values()]
    found = open_ones.get(str(said.call_id))
    if found is None:
        detail = f"call {said.call_id} of turn {turn_id} waits for no decision; open calls: {', '.join(open_ones)}"
        raise Problem("stale_input", detail[:2_000])
    return [_answered(found, said.decision, said.reason, said.arguments)]


async def _nothing_asked(connection: AsyncConnection, turn: AnyRow) -> Problem:
    """The refusal of an input for a turn that waits for none; it names turns below that do wait."""
    asking = await asking_below(connection, [turn])
    others = "".join(f", but turn {each} below it does" for each in sorted(asking[turn.id]))
    return Problem("stale_input", f"turn {turn.id} waits for no input{others}"[:2_000])


def _answered(one: _Open, decision: Decided, reason: str | None, arguments: Mapping[str, Any] | None) -> _Open:
    return replace(one, question=replace(one.question, decision=decision, reason=reason, arguments=arguments))


async def _check(connection: AsyncConnection, agent: str, tool: str, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that do not fit the tool's published schema; without one only the workers check them."""
    found = (await connection.execute(select(agents.c.tools).where(agents.c.name == agent))).scalar_one_or_none()
    published = next((each for each in found or () if each["name"] == tool), None)
    if published is None:
        return
    problems = argument_problems(published["schema"], arguments, checks_formats=published.get("checks_formats", True))
    if problems:
        raise invalid(problems)


async def _write(connection: AsyncConnection, turn_id: str, answers: Sequence[_Open], *, goes_on: bool) -> Row[Any]:
    for each in answers:
        where = [column == getattr(each.call, column.name) for column in _CALL_KEY]
        await connection.execute(update(tool_calls).where(*where).values(approval=asdict(each.question)))
    # A turn that has all its answers is no longer shown as waiting, although no worker has looked at it yet.
    parked = turns.c.status == TurnStatus.REQUIRES_ACTION
    status = case((parked, TurnStatus.RUNNING), else_=turns.c.status) if goes_on else turns.c.status
    change = update(turns).where(turns.c.id == turn_id)
    change = change.values(status=status, wakes=turns.c.wakes + 1, wake_at=db_now())
    return (await connection.execute(change.returning(*TURN_COLUMNS, turns.c.priority))).one()
