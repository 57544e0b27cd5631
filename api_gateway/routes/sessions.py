"""Sessions: list, read."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query

from api_gateway.answers import Session, SessionPage
from api_gateway.openapi import problems
from api_gateway.problems import Problem
from api_gateway.requests import NoQuery, SessionsQuery
from api_gateway.services import ServicesDep

LONGEST_ID: Final = 255

router = APIRouter(tags=["sessions"])


@router.get("/v1/sessions", responses=problems())
async def list_sessions(services: ServicesDep, query: Annotated[SessionsQuery, Query()]) -> SessionPage:
    """Sessions, newest first."""
    return await services.sessions.page(query)


@router.get("/v1/sessions/{session_id:path}", responses=problems(404))
async def read_session(session_id: str, services: ServicesDep, _query: Annotated[NoQuery, Query()]) -> Session:
    """One session; its turns are at ``/v1/turns?session_id=``."""
    is_storable = "\0" not in session_id and len(session_id) <= LONGEST_ID
    session = await services.sessions.one(session_id) if is_storable else None
    if session is None:
        raise Problem(404, "not_found", f"there is no session {session_id[:LONGEST_ID]!r}")
    return session
