"""What FastAPI gives the handlers of requests: the services of who asks, and ids from paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, cast

from fastapi import Depends, Request

from api_gateway.caller import MayGoOn
from api_gateway.requests import is_id
from api_gateway.services import Services, Shared
from api_gateway.turn_lookup import no_such_turn
from harness_worker.wire import TRACEPARENT


def shared_of(request: Request) -> Shared:
    """What the process has once."""
    return cast("Shared", request.app.state.shared)


def services_of(request: Request) -> Services:
    """The services of the tenant for whom the guard let the request in; nobody is served whom it has not seen."""
    services_for: Callable[[str, MayGoOn, str | None], Services] = request.app.state.services_for
    return services_for(request.state.tenant, request.state.may_go_on, traceparent_of(request))


def traceparent_of(request: Request) -> str | None:
    """The span that the client names as the caller's; what names none is nobody's fault, and ignored (W3C)."""
    given = request.headers.getlist("traceparent")
    return given[0] if len(given) == 1 and TRACEPARENT.fullmatch(given[0]) else None


def turn_id_of(turn_id: str) -> str:
    """A path's turn id; one that no database could hold is not found."""
    if not is_id(turn_id):
        raise no_such_turn(turn_id)
    return turn_id


SharedDep = Annotated[Shared, Depends(shared_of)]
ServicesDep = Annotated[Services, Depends(services_of)]
TurnId = Annotated[str, Depends(turn_id_of)]
