"""Artifacts: outputs too long for a model's context, in full."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Request, Response

from api_gateway.artifacts import StoredArtifact
from api_gateway.logs import in_a_line
from api_gateway.middleware.head import is_head
from api_gateway.problems import Problem
from api_gateway.requests.fields import LONGEST_ID, is_id
from api_gateway.requests.ranges import Span, Unsatisfiable, is_named, span_of
from api_gateway.routes.dependencies import NoQueryDep, ServicesDep
from api_gateway.routes.openapi import problems
from api_gateway.services import Services
from api_gateway.streams.download import BrokenOffError, Download

MEDIA_TYPE: Final = "text/plain; charset=utf-8"
_CONTENT: Final[dict[str, Any]] = {"content": {"text/plain": {"schema": {"type": "string"}}}}
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "the whole output", **_CONTENT},
    206: {"description": "the range asked for", **_CONTENT},
    304: {"description": "the client has it already: If-None-Match names its ETag"},
}

router = APIRouter(tags=["artifacts"])


@router.get("/v1/artifacts/{artifact_id}", response_class=Response, responses={**problems(404, 416), **_ANSWERS})
async def read_artifact(
    request: Request,
    artifact_id: str,
    services: ServicesDep,
    _query: NoQueryDep,
    range_: Annotated[str | None, Header(alias="Range")] = None,
    if_range: Annotated[str | None, Header()] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """The output, exactly as the tool returned it; kept for ``HARNESS_ARTIFACT_TTL_S``. ``Range`` asks for a part."""
    artifact = await _existing(artifact_id, services)
    etag = f'"{artifact.id}"'
    if if_none_match is not None and is_named(etag, if_none_match):
        return Response(status_code=304, headers={"ETag": etag})
    asked = range_ if if_range in (None, etag) else None
    span = _span(asked, artifact.size_bytes)
    sent = span or Span(start=0, stop=artifact.size_bytes)
    headers = {"Accept-Ranges": "bytes", "ETag": etag, "X-Content-Type-Options": "nosniff"}
    if span is not None:
        headers["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{artifact.size_bytes}"
    headers["Content-Length"] = str(sent.stop - sent.start)
    read = Span(start=0, stop=min(1, artifact.size_bytes)) if is_head(request) else sent
    return await _streamed(artifact, read, headers, 200 if span is None else 206, services)


def _span(header: str | None, size: int) -> Span | None:
    try:
        return span_of(header, size)
    except Unsatisfiable:
        detail = f"there is nothing in that range: the artifact has {size} bytes"
        raise Problem("range_not_satisfiable", detail, headers={"Content-Range": f"bytes */{size}"}) from None


async def _existing(artifact_id: str, services: Services) -> StoredArtifact:
    artifact = await services.artifacts.one(artifact_id) if is_id(artifact_id) else None
    if artifact is None:
        raise _gone(artifact_id)
    if not services.artifacts.is_readable:
        raise Problem("not_ready", "this gateway does not know the artifact store: set HARNESS_ARTIFACT_URL")
    return artifact


async def _streamed(
    artifact: StoredArtifact, span: Span, headers: dict[str, str], status: int, services: Services
) -> Response:
    """The answer, once its first bytes were read: an artifact that is gone must not become half an answer."""
    chunks = services.artifacts.chunks(artifact, span)
    try:
        first = await anext(chunks, b"")
    except FileNotFoundError:
        raise _gone(artifact.id) from None
    except OSError:
        detail = "the artifact store does not answer; try again soon"
        raise Problem("not_ready", detail, headers={"Retry-After": "1"}) from None
    body = _body(first, chunks)
    return Download(body, services.may_go_on, status_code=status, headers=headers, media_type=MEDIA_TYPE)


async def _body(first: bytes, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    try:
        async with aclosing(chunks):
            yield first
            async for chunk in chunks:
                yield chunk
    except OSError as error:
        raise BrokenOffError(f"the artifact store does not answer: {in_a_line(error)}") from None


def _gone(artifact_id: str) -> Problem:
    gone = "artifacts are removed after a time (HARNESS_ARTIFACT_TTL_S)"
    detail = f"there is no artifact {artifact_id[:LONGEST_ID]!r}; {gone}"
    return Problem("not_found", detail)
