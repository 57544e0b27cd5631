"""The state of a turn's webhook, and the description of the requests that endpoints are sent."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI

from api_gateway.problems import Problem
from api_gateway.routes.dependencies import NoQueryDep, ServicesDep, TurnId
from api_gateway.routes.openapi import problems
from api_gateway.streams.live import RESTING_EVENTS
from api_gateway.use_cases.turn_lookup import existing_turn
from api_gateway.webhooks.payload import TurnTold
from api_gateway.webhooks.reading import Webhook

router = APIRouter(tags=["turns"])


@router.get("/v1/turns/{turn_id}/webhook", responses=problems(404))
async def read_webhook(turn_id: TurnId, _query: NoQueryDep, services: ServicesDep) -> Webhook:
    """The state of the turn's webhook: what was delivered, the last attempt, and when the next one is due."""
    found = await services.webhooks.of_turn(turn_id)
    if found is None:
        await existing_turn(turn_id, services)
        raise Problem("not_found", f"turn {turn_id!r} has no webhook")
    return found


def describe_webhooks(app: FastAPI) -> None:
    """Describe in the OpenAPI document what endpoints are sent."""
    for kind in sorted(RESTING_EVENTS):
        app.webhooks.add_api_route(kind, _received, methods=["POST"], status_code=204, name=kind, tags=["turns"])


async def _received(body: TurnTold) -> None:  # pyright: ignore[reportUnusedParameter]
    """A turn with a webhook has come to rest. Any 2xx acknowledges it; it is signed as Standard Webhooks specifies."""
