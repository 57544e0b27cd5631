"""Metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Request, Response

from api_gateway.metrics.exposition import exposed
from api_gateway.routes.dependencies import SharedDep
from api_gateway.webhooks.rules import DeliveryOutcome

router = APIRouter(tags=["health"])


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request, shared: SharedDep) -> Response:
    """Metrics of the fleet and of this process, for Prometheus; every gateway reports the same fleet."""
    figures = await shared.figures.read()
    told: Mapping[DeliveryOutcome, int] = shared.deliverer.outcomes if shared.deliverer else {}
    content, content_type = exposed(figures, shared.traffic, told, request.headers.get("accept", ""))
    return Response(content, headers={"Content-Type": content_type})
