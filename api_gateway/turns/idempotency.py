"""``Idempotency-Key``, kept for a day: requests with one make a single thing, however often they are sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row, delete, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from api_gateway.problems import Problem
from harness_worker.schema import db_now, idempotency_keys, insert_for, turns
from harness_worker.wire import FINAL_STATUSES, IDEMPOTENCY_KEY_S

FORGOTTEN_AT_ONCE: Final = 20
"""How many expired keys each new one removes: more than one, so that they do not pile up."""

ACCEPTED: Final = 202
FINISHED: Final = 200

IN_FLIGHT: Final = 0
"""The status code stored for a key whose first answer has not been given yet."""

IN_FLIGHT_S: Final = 75.0
"""How long a first answer may take: at most the cap of ``Prefer: wait``, the last look at the turn, and storing the
status. If there is none after that, or once the turn has ended, its gateway has died and the turn is the answer."""

# In a subquery, the clock is read only once, and Postgres can use the index.
_IS_OLD: Final = idempotency_keys.c.created_at < select(db_now()).scalar_subquery() - IDEMPOTENCY_KEY_S
_KEY: Final = (idempotency_keys.c.tenant, idempotency_keys.c.key)
_OLDEST: Final = select(*_KEY).where(_IS_OLD).order_by(idempotency_keys.c.created_at).limit(FORGOTTEN_AT_ONCE)
_FORGET: Final = delete(idempotency_keys).where(tuple_(*_KEY).in_(_OLDEST.with_for_update(skip_locked=True)))
"""Removes the oldest expired keys. With SKIP LOCKED, concurrent clean-ups do not wait for each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyClaim:
    """A request that must make at most one turn, or one batch.

    Args:
        key: The client's ``Idempotency-Key``.
        digest: The body's digest.
        answers_later: Whether the answer's status is not known yet, because the request waits for the turn.
    """

    key: str
    digest: str
    answers_later: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What an earlier request with the key made: the id of its turn or batch, and the first answer's status code."""

    made_id: str
    status_code: int


class IdempotencyKeys:
    """The keys of one tenant's requests."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant

    async def claim(self, connection: AsyncConnection, claim: IdempotencyClaim, made_id: str) -> Earlier | None:
        """Take the key for ``made_id``, which the transaction makes, or return what an earlier request with it made.

        Raises:
            Problem: 422 ``idempotency_mismatch``, 409 ``idempotency_in_flight``.
        """
        while not await self._took(connection, claim, made_id):
            earlier = await self._found(connection, claim)
            if earlier is not None:  # else the key has become a day old meanwhile, and was removed
                return earlier
        await connection.execute(_FORGET)
        return None

    async def _took(self, connection: AsyncConnection, claim: IdempotencyClaim, made_id: str) -> bool:
        await connection.execute(delete(idempotency_keys).where(*self._key(claim), _IS_OLD))
        row = {
            "tenant": self._tenant,
            "key": claim.key,
            "body": claim.digest,
            "turn_id": made_id,
            "status_code": IN_FLIGHT if claim.answers_later else ACCEPTED,
            "created_at": db_now(),
        }
        # A concurrent request with the same key waits here until the first has committed.
        claiming = insert_for(connection.dialect.name, idempotency_keys).values(row).on_conflict_do_nothing()
        taken = await connection.execute(claiming.returning(idempotency_keys.c.key))
        return taken.one_or_none() is not None

    async def answered(self, connection: AsyncConnection, claim: IdempotencyClaim, status_code: int) -> None:
        """Store the first answer's status code."""
        await connection.execute(update(idempotency_keys).where(*self._key(claim)).values(status_code=status_code))

    async def _found(self, connection: AsyncConnection, claim: IdempotencyClaim) -> Earlier | None:
        """What the key's request made; ``None`` if the key is gone."""
        age_s = (db_now() - idempotency_keys.c.created_at).label("age_s")
        ended = select(turns.c.id).where(turns.c.id == idempotency_keys.c.turn_id, turns.c.status.in_(FINAL_STATUSES))
        looked_up = select(idempotency_keys, age_s, ended.exists().label("has_ended")).where(*self._key(claim))
        row = (await connection.execute(looked_up)).one_or_none()
        if row is None:
            return None
        earlier = _earlier(row, claim)
        if row.status_code == IN_FLIGHT:  # its gateway has died: later repeats must get the same answer as this one
            unanswered = (*self._key(claim), idempotency_keys.c.status_code == IN_FLIGHT)
            change = update(idempotency_keys).where(*unanswered).values(status_code=earlier.status_code)
            await connection.execute(change)
        return earlier

    def _key(self, claim: IdempotencyClaim) -> tuple[Any, ...]:
        return (idempotency_keys.c.tenant == self._tenant, idempotency_keys.c.key == claim.key)


def _earlier(row: Row[Any], claim: IdempotencyClaim) -> Earlier:
    if row.body != claim.digest:
        raise Problem("idempotency_mismatch", "this Idempotency-Key was used with another body; take a new key")
    if row.status_code != IN_FLIGHT:
        return Earlier(made_id=row.turn_id, status_code=row.status_code)
    if row.has_ended:
        return Earlier(made_id=row.turn_id, status_code=FINISHED)
    if row.age_s < IN_FLIGHT_S:
        detail = "the first request with this Idempotency-Key is still being answered; try again soon"
        raise Problem("idempotency_in_flight", detail, headers={"Retry-After": "1"})
    return Earlier(made_id=row.turn_id, status_code=ACCEPTED)
