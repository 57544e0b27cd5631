"""Making a turn: the one transaction behind ``POST /v1/turns``, and its idempotency key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, cast

from sqlalchemy import Row, delete, insert, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from api_gateway.admission import TenantLimits, check_queue
from api_gateway.database import WRITES
from api_gateway.models import Budget, Turn, Usage
from api_gateway.places import Place, taken_place
from api_gateway.problems import Problem, invalid_at
from api_gateway.requests import BudgetRequest, TurnRequest
from api_gateway.rows import turn_of
from api_gateway.webhook_urls import host_of
from harness_worker.schema import agents, db_now, idempotency_keys, messages, turn_events, turns, webhooks
from harness_worker.wire import FINAL_STATUSES, TurnStatus

KEPT_S: Final = 86_400.0
"""How long an idempotency key is remembered."""

FORGOTTEN_AT_ONCE: Final = 20
"""How many keys that are older each new one takes away: more than one, so that they do not pile up."""

IN_FLIGHT: Final = 0
"""The status code of a key whose first answer is not given yet."""

IN_FLIGHT_S: Final = 65.0
"""A first answer takes at most ``Prefer: wait``'s cap; after that, or once its turn has ended, its gateway has died and
the turn is the answer."""

LARGEST_COUNT: Final = 2**53

# As a subquery the clock is read once, and Postgres can use the index.
_IS_OLD: Final = idempotency_keys.c.created_at < select(db_now()).scalar_subquery() - KEPT_S
_KEY: Final = (idempotency_keys.c.tenant, idempotency_keys.c.key)
_OLDEST: Final = select(*_KEY).where(_IS_OLD).order_by(idempotency_keys.c.created_at).limit(FORGOTTEN_AT_ONCE)
_FORGET: Final = delete(idempotency_keys).where(tuple_(*_KEY).in_(_OLDEST.with_for_update(skip_locked=True)))
"""Nobody waits for one who takes away the same keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyClaim:
    """A request that must make at most one turn.

    Args:
        key: The client's ``Idempotency-Key``.
        digest: The body's.
        answers_later: Whether the answer's status is not known yet, because the request waits for the turn.
    """

    key: str
    digest: str
    answers_later: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """The turn of a request.

    Args:
        turn_id: Which.
        turn: As it was made; ``None`` if an earlier request made it.
        replayed: The first answer's status code, if an earlier request made it.
        ahead: The unfinished turns of its session that it waits for, as (id, priority), in order.
    """

    turn_id: str
    turn: Turn | None = None
    replayed: int | None = None
    ahead: tuple[tuple[str, str], ...] = ()


class TurnCreator:
    """Makes the turns of one tenant.

    Args:
        engine: The database.
        tenant: Whose turns.
        new_id: Makes a turn's id.
        limits: What it may have.
        traceparent: The caller's span, if it named one.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        tenant: str,
        new_id: Callable[[], str],
        limits: TenantLimits,
        traceparent: str | None = None,
    ) -> None:
        self._writer = engine.execution_options(**{WRITES: True})
        self._insert_key = postgres_insert if engine.dialect.name == "postgresql" else sqlite_insert
        self._tenant = tenant
        self._new_id = new_id
        self._limits = limits
        self._traceparent = traceparent

    async def create(
        self,
        request: TurnRequest,
        claim: IdempotencyClaim | None,
        *,
        follows: str | None = None,
        refusal: Problem | None = None,
    ) -> Created:
        """Insert a queued turn with its message and first event, or find the one ``claim`` has made before.

        Args:
            request: What to do.
            claim: Its idempotency key.
            follows: The turn that must be the last of its session before this one.
            refusal: Why no other turn is made, if so.

        Raises:
            Problem: 404 ``unknown_agent``, 422 ``idempotency_mismatch``, 409 ``idempotency_in_flight``, 409
                ``session_busy``, 422 ``invalid_request`` (another turn is the last), 429 ``queue_full``, and
                ``refusal``; nothing is written then, and the key is not used up.
        """
        turn_id = self._new_id()
        async with self._writer.begin() as connection:
            earlier = await self._claim(connection, claim, turn_id) if claim else None
            if earlier is not None:
                return earlier
            if refusal is not None:
                raise refusal
            turn, place = await self._insert(connection, turn_id, request, follows)
        return Created(turn_id=turn_id, turn=turn, ahead=place.ahead)

    async def answered(self, claim: IdempotencyClaim, status_code: int) -> None:
        """Remember the first answer's status code."""
        change = update(idempotency_keys).where(*self._key(claim)).values(status_code=status_code)
        async with self._writer.begin() as connection:
            await connection.execute(change)

    def _key(self, claim: IdempotencyClaim) -> tuple[Any, ...]:
        return (idempotency_keys.c.tenant == self._tenant, idempotency_keys.c.key == claim.key)

    async def _claim(self, connection: AsyncConnection, claim: IdempotencyClaim, turn_id: str) -> Created | None:
        await connection.execute(delete(idempotency_keys).where(*self._key(claim), _IS_OLD))
        row = {
            "tenant": self._tenant,
            "key": claim.key,
            "body": claim.digest,
            "turn_id": turn_id,
            "status_code": IN_FLIGHT if claim.answers_later else 202,
            "created_at": db_now(),
        }
        # A concurrent request with the same key waits here until the first has committed.
        claiming = self._insert_key(idempotency_keys).values(row).on_conflict_do_nothing()
        taken = await connection.execute(claiming.returning(idempotency_keys.c.key))
        if taken.one_or_none() is not None:
            await connection.execute(_FORGET)
            return None
        age_s = (db_now() - idempotency_keys.c.created_at).label("age_s")
        ended = select(turns.c.id).where(turns.c.id == idempotency_keys.c.turn_id, turns.c.status.in_(FINAL_STATUSES))
        looked_up = select(idempotency_keys, age_s, ended.exists().label("has_ended")).where(*self._key(claim))
        row = (await connection.execute(looked_up)).one()
        earlier = _earlier(row, claim)
        if row.status_code == IN_FLIGHT:  # nobody else answers it: what this repeat is told, later ones are told too
            unanswered = (*self._key(claim), idempotency_keys.c.status_code == IN_FLIGHT)
            change = update(idempotency_keys).where(*unanswered).values(status_code=earlier.replayed)
            await connection.execute(change)
        return earlier

    async def _insert(
        self, connection: AsyncConnection, turn_id: str, request: TurnRequest, follows: str | None
    ) -> tuple[Turn, Place]:
        budget = clamped(await self._caps(connection, request.agent), self._limits.budget, request.budget)
        if self._limits.queue is not None:
            await check_queue(connection, self._tenant, self._limits.queue)
        session_id = request.session_id or self._new_id()
        place = await taken_place(connection, self._tenant, session_id, request.multitask or "enqueue")
        if follows is not None:
            await self._check_last(connection, follows, session_id, place.number - 1)
        inserted = await connection.execute(
            insert(turns)
            .values(
                id=turn_id,
                tenant=self._tenant,
                session_id=session_id,
                number=place.number,
                waits=bool(place.ahead),
                agent=request.agent,
                status=TurnStatus.QUEUED,
                input=request.input,
                priority=request.queue_priority,
                metadata=request.metadata or {},
                parallel=request.parallel,
                system_prompt_override=request.system_prompt_override,
                skill_context=request.skill_context,
                traceparent=self._traceparent,
                budget=budget.model_dump(),
                used=Usage().model_dump(),
                last_seq=1,
                message_count=1,
                cancel_requested=False,
                deadline_at=place.now + budget.timeout_s,
                wake_at=place.look_at,
                created_at=place.now,
            )
            .returning(turns)
        )
        turn = turn_of(inserted.one(), ())
        message = {"turn_id": turn_id, "position": 0, "role": "user", "content": request.input}
        await connection.execute(insert(messages).values(message))
        data = {"agent": request.agent, "session_id": session_id}
        event = {"turn_id": turn_id, "seq": 1, "type": "turn.queued", "at": place.now, "data": data}
        await connection.execute(insert(turn_events).values(event))
        if request.webhook is not None:
            await connection.execute(insert(webhooks).values(_webhook(turn_id, request.webhook, place.now)))
        return turn, place

    async def _check_last(self, connection: AsyncConnection, turn_id: str, session_id: str, number: int) -> None:
        """Refuse to follow a turn that others have followed: the model would read them too."""
        place = (turns.c.tenant == self._tenant, turns.c.session_id == session_id, turns.c.number == number)
        last = (await connection.execute(select(turns.c.id).where(*place))).scalar_one_or_none()
        if last is None:  # `harness prune` was quicker
            raise Problem(404, "not_found", f"there is no turn {turn_id!r} any more")
        if last != turn_id:
            msg = f"{turn_id} was gone on from already, and a conversation does not fork: go on from {last}"
            raise invalid_at(["body", "previous_response_id"], msg)

    async def _caps(self, connection: AsyncConnection, agent: str) -> Mapping[str, Any]:
        """The agent's budget."""
        caps = (await connection.execute(select(agents.c.budget).where(agents.c.name == agent))).scalar_one_or_none()
        if caps is None:
            known = (await connection.execute(select(agents.c.name).order_by(agents.c.name).limit(20))).scalars()
            raise _unknown_agent(agent, list(known))
        return caps


def clamped(caps: Mapping[str, Any], *wishes: BudgetRequest | None) -> Budget:
    """A budget with the limits of each wish in place, in order, never above what they were."""
    limits = dict(caps)
    wanted = [wish.model_dump(exclude_none=True) for wish in wishes if wish is not None]
    for name, value in chain.from_iterable(each.items() for each in wanted):
        cap = LARGEST_COUNT if limits[name] is None else limits[name]
        limits[name] = min(value, cap)
    return Budget.model_validate(limits)


def _webhook(turn_id: str, url: str, now: float) -> dict[str, Any]:
    """A row of ``webhooks`` of which nothing was told but that the turn is queued, which its client knows."""
    told = {"told_seq": 1, "seq": 1, "attempt": 0, "failures": 0, "due_at": now}
    return {"turn_id": turn_id, "url": url, "host": host_of(url), **told}


def _unknown_agent(name: str, known: list[str]) -> Problem:
    there = f"; there are: {', '.join(known)}" if known else "; no worker has published any agent yet"
    return Problem(404, "unknown_agent", f"there is no agent {name[:200]!r}{there}", extra={"agents": known})


def _earlier(row: Row[Any], claim: IdempotencyClaim) -> Created:
    if row.body != claim.digest:
        raise Problem(
            422, "idempotency_mismatch", "this Idempotency-Key was used with another body; take a new key for it"
        )
    if row.status_code != IN_FLIGHT:
        return Created(turn_id=row.turn_id, replayed=cast("int", row.status_code))
    if row.has_ended:
        return Created(turn_id=row.turn_id, replayed=200)
    if row.age_s < IN_FLIGHT_S:
        detail = "the first request with this Idempotency-Key is still being answered; try again soon"
        raise Problem(409, "idempotency_in_flight", detail, headers={"Retry-After": "1"})
    return Created(turn_id=row.turn_id, replayed=202)
