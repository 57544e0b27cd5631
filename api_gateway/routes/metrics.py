"""Figures for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api_gateway.exposition import exposed
from api_gateway.services import ServicesDep

router = APIRouter(tags=["health"])


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request, services: ServicesDep) -> Response:
    """The fleet's and this process's figures, as Prometheus reads them; the same fleet from every gateway."""
    figures = await services.figures.read()
    content, content_type = exposed(figures, services.traffic, request.headers.get("accept", ""))
    return Response(content, headers={"Content-Type": content_type})
