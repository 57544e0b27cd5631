"""API keys: found in a request, and looked up for each, so that one that is revoked is refused at once everywhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from sqlalchemy import bindparam, or_, select
from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway.concurrency.coalescing import Gathered
from api_gateway.problems import UNREACHABLE, Problem, no_database
from harness_worker.credentials import KEY_PREFIX, key_digest
from harness_worker.schema import api_keys, db_now

SCHEME: Final = "bearer"
UNAUTHORIZED: Final = "unauthorized"

_LIVES: Final = or_(api_keys.c.expires_at.is_(None), api_keys.c.expires_at > db_now())
_TENANTS: Final = select(api_keys.c.digest, api_keys.c.tenant).where(
    api_keys.c.digest.in_(bindparam("digests", expanding=True)), api_keys.c.revoked_at.is_(None), _LIVES
)


def key_in(authorization: Sequence[str]) -> str | None:
    """The API key in a request's ``Authorization`` headers; ``None`` if there is none, whatever else is there.

    Raises:
        Problem: 401 ``unauthorized``: there is one beside another header, or not as a bearer token. Whoever sends one
            is not to be taken for somebody without.
    """
    if not any(KEY_PREFIX in value for value in authorization):
        return None
    scheme, *credentials = authorization[0].split(maxsplit=1) or [""]
    if len(authorization) > 1 or scheme.lower() != SCHEME:
        raise refused_key()
    return credentials[0].strip()


def refused_key() -> Problem:
    """401 for a key that is not accepted; a stranger is not told whether it ever was."""
    detail = (
        "this API key is unknown, expired or revoked: send one header, Authorization: Bearer KEY, with a key "
        "that `harness keys create` made"
    )
    return Problem(UNAUTHORIZED, detail, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'})


class Keys:
    """The keys of all tenants.

    Args:
        engine: The database.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._tenants = Gathered(self._found)

    async def tenant_of(self, key: str) -> str:
        """Whose the key is; one read by an index, and none for what cannot be a key.

        Raises:
            Problem: 401 ``unauthorized``: it is not accepted. 503 ``not_ready``: nobody can say whether it is.
        """
        digest = key_digest(key)
        try:
            tenant = None if digest is None else (await self._found({digest})).get(digest)
        except UNREACHABLE as away:
            raise no_database(away) from None
        if tenant is None:
            raise refused_key()
        return tenant

    async def still_accepts(self, key: str) -> bool:
        """Whether a key that was accepted is so yet, read for many at once; as long as nobody can say, it is."""
        digest = key_digest(key)
        try:
            return digest is not None and await self._tenants.of(digest) is not None
        except UNREACHABLE:
            return True

    async def _found(self, digests: Collection[str]) -> Mapping[str, str]:
        """The tenants whose keys have these digests, by digest."""
        async with self._engine.connect() as connection:
            return {row.digest: row.tenant for row in await connection.execute(_TENANTS, {"digests": list(digests)})}
