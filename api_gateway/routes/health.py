"""Whether the process is alive, and whether it can take turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final

from fastapi import APIRouter

from api_gateway.answers import Health
from api_gateway.database import check_tables
from api_gateway.logs import in_a_line
from api_gateway.openapi import problems
from api_gateway.problems import Problem
from api_gateway.services import SharedDep

CHECK_TIMEOUT_S: Final = 5.0

_WHAT_TO_DO: Final = {
    "database": "the database does not answer or lacks tables: see HARNESS_DATABASE_URL and `harness migrate`",
    "broker": "the broker does not answer: see HARNESS_REDIS_URL or HARNESS_BROKER_URL",
}

_log = logging.getLogger(__name__)
router = APIRouter(tags=["health"])


@router.get("/healthz")
async def alive() -> Health:
    """The process answers."""
    return Health()


@router.get("/readyz", responses={503: problems()[503]})
async def ready(shared: SharedDep) -> Health:
    """The database is migrated and answers, and so does the broker."""
    wanted = {"database": check_tables(shared.engine), "broker": shared.publisher.check()}
    answers = await asyncio.gather(*(_answers(name, check) for name, check in wanted.items()))
    missing = [name for name, answered in zip(wanted, answers, strict=True) if not answered]
    if not missing:
        return Health()
    detail = "; ".join(_WHAT_TO_DO[name] for name in missing)
    raise Problem(503, "not_ready", detail, headers={"Retry-After": "1"}, extra={"missing": missing})


async def _answers(name: str, check: Awaitable[None]) -> bool:
    try:
        await asyncio.wait_for(check, CHECK_TIMEOUT_S)
    except Exception as error:  # noqa: BLE001 - never raises: whatever is wrong with it, it is not ready
        _log.warning("not ready: the %s: %s", name, in_a_line(error))
        return False
    return True
