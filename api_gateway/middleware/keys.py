"""API keys: found in a request and looked up for each one, so that every gateway refuses a revoked key at once."""

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

_LIVES: Final = or_(api_keys.c.expires_at.is_(None), api_keys.c.expires_at > db_now())
_TENANTS: Final = select(api_keys.c.digest, api_keys.c.tenant).where(
    api_keys.c.digest.in_(bindparam("digests", expanding=True)), api_keys.c.revoked_at.is_(None), _LIVES
)


def key_in(authorization: Sequence[str]) -> str | None:
    """The API key in a request's ``Authorization`` headers; ``None`` if they contain none, whatever else they hold.

    Raises:
        Problem: 401 ``unauthorized``: there is a key, but with a second such header, or not as a bearer token; a
            client that sends a key must not be served as one without.
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
    return Problem("unauthorized", detail, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'})


class Keys:
    """The keys of all tenants.

    Args:
        engine: The database.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._tenants = Gathered(self._found)

    async def tenant_of(self, key: str) -> str:
        """The key's tenant. Takes one read by an index, or none for a text that cannot be a key.

        Raises:
            Problem: 401 ``unauthorized``: the key is not accepted; 503 ``not_ready``: the database cannot be asked.
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
        """Whether an accepted key still is, read for many keys at once; ``True`` while the database cannot be asked."""
        digest = key_digest(key)
        try:
            return digest is not None and await self._tenants.of(digest) is not None
        except UNREACHABLE:
            return True

    async def _found(self, digests: Collection[str]) -> Mapping[str, str]:
        """The tenants whose keys have these digests, by digest."""
        async with self._engine.connect() as connection:
            return {row.digest: row.tenant for row in await connection.execute(_TENANTS, {"digests": list(digests)})}
