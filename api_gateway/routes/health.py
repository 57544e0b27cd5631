"""Whether the process is alive, and whether it can take turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Final

from fastapi import APIRouter
from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway.concurrency.patience import answered_within
from api_gateway.database import check_tables
from api_gateway.logs import in_a_line
from api_gateway.problems import TAKES_NO_WRITES, Problem, takes_no_writes
from api_gateway.publisher import Publisher
from api_gateway.routes.dependencies import SharedDep
from api_gateway.routes.openapi import problems
from api_gateway.turns.answers import Answer

CHECK_TIMEOUT_S: Final = 5.0

_WHAT_TO_DO: Final = {
    "database": "the database does not answer or lacks tables: see HARNESS_DATABASE_URL and `harness migrate`",
    "broker": "the broker does not answer: see HARNESS_REDIS_URL or HARNESS_BROKER_URL",
}

_log = logging.getLogger(__name__)
router = APIRouter(tags=["health"])


class Health(Answer):
    """The process is alive, or ready."""

    status: str = "ok"


@router.get("/healthz")
async def alive() -> Health:
    """200 as long as the process answers."""
    return Health()


@router.get("/readyz", responses={503: problems()[503]})
async def ready(shared: SharedDep) -> Health:
    """200 if the database is migrated, answers and takes writes, and the broker answers."""
    missing = await shared.missing()
    if not missing:
        return Health()
    detail = "; ".join(missing.values())
    raise Problem("not_ready", detail, headers={"Retry-After": "1"}, extra={"missing": list(missing)})


async def look_for_missing(engine: AsyncEngine, publisher: Publisher) -> Mapping[str, str]:
    """What the gateway lacks, by name, with what is wrong and what to do."""
    wanted = {"database": check_tables(engine), "broker": publisher.check()}
    answers = await asyncio.gather(*(_wrong(name, check) for name, check in wanted.items()))
    return {name: wrong for name, wrong in zip(wanted, answers, strict=True) if wrong is not None}


async def _wrong(name: str, check: Awaitable[None]) -> str | None:
    """What is wrong and what to do; ``None`` if the check passes."""
    try:
        await answered_within(CHECK_TIMEOUT_S, check)
    except Exception as error:  # noqa: BLE001 - never raises: whatever is wrong with it, it is not ready
        _log.warning("not ready: the %s: %s", name, in_a_line(error))
        return TAKES_NO_WRITES if takes_no_writes(error) else _WHAT_TO_DO[name]
    return None
