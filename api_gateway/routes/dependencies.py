"""The dependencies of the request handlers: the tenant's services, request bodies, and ids and names from paths.

They are coroutines, even those that wait for nothing: FastAPI gives functions a thread, which costs more than they do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

from fastapi import Depends, Query, Request
from pydantic import BaseModel
from starlette.convertors import StringConvertor, register_url_convertor

from api_gateway.problems import FieldProblem, invalid, invalid_at
from api_gateway.requests.body import Body, read_body
from api_gateway.requests.fields import is_id
from api_gateway.requests.queries import NoQuery
from api_gateway.services import Services, Shared
from api_gateway.streams.permission import MayGoOn
from api_gateway.turns.idempotency import IdempotencyClaim
from api_gateway.use_cases.turn_lookup import no_such_turn
from harness_worker.wire import TRACEPARENT

M = TypeVar("M", bound=BaseModel)


class _Name(StringConvertor):
    """A name at the end of a path, of any characters; Starlette's own ``path`` may be empty, and has no line breaks."""

    regex = r"[\s\S]+"


register_url_convertor("name", _Name())


async def shared_of(request: Request) -> Shared:
    """The services that the process shares between tenants."""
    return request.app.state.shared


async def services_of(request: Request) -> Services:
    """The services of the tenant for whom the guard let the request in; fails for a request it has not seen."""
    services_for: Callable[[str, MayGoOn, str | None], Services] = request.app.state.services_for
    return services_for(request.state.tenant, request.state.may_go_on, traceparent_of(request))


def traceparent_of(request: Request) -> str | None:
    """The caller's span that the client names; a header that names none is ignored, as W3C Trace Context demands."""
    given = request.headers.getlist("traceparent")
    return given[0] if len(given) == 1 and TRACEPARENT.fullmatch(given[0]) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted(Generic[M]):
    """The body of a request that makes something.

    Args:
        value: The validated body.
        claim: The claim of its ``Idempotency-Key``, if it has one.
    """

    value: M
    claim: IdempotencyClaim | None


def body_of(model: type[M]) -> Callable[[Request], Awaitable[M]]:
    """A dependency that reads a request's body as ``model``; it raises what ``read_body`` does."""

    async def read(request: Request) -> M:
        return (await _body(request, model)).value

    return read


def posted_of(model: type[M]) -> Callable[[Request], Awaitable[Posted[M]]]:
    """As ``body_of``, but for a request that makes something; a malformed key is 422 ``invalid_request``."""

    async def read(request: Request) -> Posted[M]:
        key = _idempotency_key(request)
        body = await _body(request, model, with_digest=key is not None)
        return Posted(value=body.value, claim=IdempotencyClaim(key=key, digest=body.digest) if key else None)

    return read


async def _body(request: Request, model: type[M], *, with_digest: bool = False) -> Body[M]:
    shared = await shared_of(request)
    most_bytes, idle_s = shared.settings.max_body_bytes, shared.settings.body_idle_s
    return await read_body(
        model, request, shared.body_places, most_bytes=most_bytes, idle_s=idle_s, with_digest=with_digest
    )


def _idempotency_key(request: Request) -> str | None:
    given = request.headers.getlist("idempotency-key")
    if not given:
        return None
    if len(given) > 1 or not 1 <= len(given[0]) <= 255:
        raise invalid_at(["header", "Idempotency-Key"], "must be given once, with 1 to 255 characters")
    return given[0]


async def no_repeats(request: Request) -> None:
    """A dependency that refuses query parameters given twice, because only one of their values could count.

    Raises:
        Problem: 422 ``invalid_request``, naming each of them.
    """
    given = Counter(name for name, _ in request.query_params.multi_items())
    twice = [name for name, times in given.items() if times > 1]
    if twice:
        raise invalid([FieldProblem(loc=["query", name[:200]], msg="must be given once") for name in twice])


async def turn_id_of(turn_id: str) -> str:
    """The turn id in a path; 404 ``not_found`` for one that no database could hold."""
    if not is_id(turn_id):
        raise no_such_turn(turn_id)
    return turn_id


NoQueryDep = Annotated[NoQuery, Query()]
SharedDep = Annotated[Shared, Depends(shared_of)]
ServicesDep = Annotated[Services, Depends(services_of)]
TurnId = Annotated[str, Depends(turn_id_of)]
