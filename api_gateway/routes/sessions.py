"""Sessions: list and read."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api_gateway.problems import Problem
from api_gateway.requests.fields import is_id
from api_gateway.requests.queries import PageQuery
from api_gateway.routes.dependencies import NoQueryDep, ServicesDep
from api_gateway.routes.openapi import problems
from api_gateway.sessions import Session, SessionPage
from harness_worker.validation import MAX_SESSION_ID_CHARS

router = APIRouter(tags=["sessions"])


@router.get("/v1/sessions", responses=problems())
async def list_sessions(services: ServicesDep, query: Annotated[PageQuery, Query()]) -> SessionPage:
    """Sessions, newest first."""
    return await services.sessions.page(query)


@router.get("/v1/sessions/{session_id:name}", responses=problems(404))
async def read_session(session_id: str, services: ServicesDep, _query: NoQueryDep) -> Session:
    """One session; its turns are at ``/v1/turns?session_id=``."""
    session = await services.sessions.one(session_id) if is_id(session_id, MAX_SESSION_ID_CHARS) else None
    if session is None:
        raise Problem("not_found", f"there is no session {session_id[:MAX_SESSION_ID_CHARS]!r}")
    return session
