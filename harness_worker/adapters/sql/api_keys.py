"""The gateway's API keys in SQL: creating, listing and revoking them; each method is one short transaction."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, insert, select, update

from harness_worker.adapters.sql.transactions import TransactionResult, read, write
from harness_worker.core.api_keys import ApiKey
from harness_worker.schema import api_keys, db_now

DAY_S: Final = 86_400.0

_COLUMNS: Final = tuple(api_keys.c[field.name] for field in fields(ApiKey))
_LISTED: Final = select(*_COLUMNS, db_now().label("now")).order_by(
    api_keys.c.tenant, api_keys.c.created_at, api_keys.c.id
)


class SqlApiKeys:
    """Keys in the journal's database. Every method raises ``TransientError`` if the database does not answer.

    Args:
        engine: Made by ``make_engine``.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, key_id: str, digest: str, *, tenant: str, name: str, days: int | None) -> ApiKey:
        """Have gateways accept the key with that digest for ``days``; ``None``: until it is revoked."""
        expires_at = None if days is None else db_now() + days * DAY_S
        row = {"id": key_id, "digest": digest, "tenant": tenant, "name": name, "expires_at": expires_at}
        added = insert(api_keys).values(**row, created_at=db_now()).returning(*_COLUMNS)
        return write(self._engine, lambda connection: TransactionResult(value=_key_of(connection.execute(added).one())))

    def listed(self, tenant: str | None) -> list[tuple[ApiKey, float]]:
        """All keys, or those of one tenant, each with the database's time; by tenant, oldest first."""
        wanted = _LISTED if tenant is None else _LISTED.where(api_keys.c.tenant == tenant)
        rows = read(self._engine, lambda connection: connection.execute(wanted).all())
        return [(_key_of(row), row.now) for row in rows]

    def revoke(self, key_id: str) -> tuple[ApiKey, bool] | None:
        """Have gateways refuse the key from now on.

        Returns:
            The key, and whether this revoked it, rather than an earlier call; ``None`` if there is no such key.
        """
        one = api_keys.c.id == key_id
        change = update(api_keys).where(one, api_keys.c.revoked_at.is_(None)).values(revoked_at=db_now())

        def work(connection: Connection) -> TransactionResult[tuple[ApiKey, bool] | None]:
            changed = connection.execute(change).rowcount == 1
            row = connection.execute(select(*_COLUMNS).where(one)).one_or_none()
            return TransactionResult(value=None if row is None else (_key_of(row), changed))

        return write(self._engine, work)


def _key_of(row: Row[Any]) -> ApiKey:
    return ApiKey(**{column.name: getattr(row, column.name) for column in _COLUMNS})
