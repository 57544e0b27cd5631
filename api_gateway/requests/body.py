"""Request bodies: read up to the limit and within a time, parsed strictly, then validated; whatever their type is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from api_gateway.problems import Problem, field_problems, invalid, invalid_at
from api_gateway.requests.body_places import BodyPlaces
from api_gateway.requests.json_object import digest, parse_object

LONG: Final = 100_000
"""Bodies of this many bytes or more need a place, and are parsed in a thread, so that the event loop is not blocked."""

MOST_LISTED: Final = 25_000
"""Things wrong with one body that are listed, to tell the first: nothing else runs in the process meanwhile."""

DRAIN_FACTOR: Final = 10
"""How many times the limit is read and dropped, so that a client that is still sending can hear the refusal."""

IDLES: Final = 10
"""How many times as long as its client may pause a whole body may take: else a byte a pause would hold a connection for
ever."""

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Body(Generic[M]):
    """A request's body.

    Args:
        value: The validated body.
        digest: SHA-256 of the parsed JSON in canonical form: equal for bodies that differ only in spelling, or in
            members that are null, at any depth. A null that is an item of a list counts. Empty if nobody asked for it.
    """

    value: M
    digest: str


async def read_body(
    model: type[M], request: Request, places: BodyPlaces, *, most_bytes: int, idle_s: float, with_digest: bool
) -> Body[M]:
    """A request's body as ``model``.

    Args:
        model: What it shall be.
        request: The request, which the guard has let in.
        places: Where a long body waits.
        most_bytes: How long it may be.
        idle_s: How long its client may pause, in seconds.
        with_digest: Whether somebody asks for its digest.

    Raises:
        Problem: 408 ``body_too_slow``, 413 ``payload_too_large``, 422 ``invalid_request``, 503 ``not_ready``.
    """
    _refuse_encoded(request)
    async with AsyncExitStack() as held:
        take_place = partial(held.enter_async_context, places.reading(request.state.tenant))
        raw = await read_limited(_pieces(request, idle_s), most_bytes, take_place)
        read_it = partial(parsed_body, model, raw, with_digest=with_digest)
        if len(raw) < LONG:
            return read_it()
        async with places.parsing():
            return await asyncio.to_thread(read_it)


def parsed_body(model: type[M], raw: bytes, *, with_digest: bool) -> Body[M]:
    """The body in ``raw``.

    Raises:
        Problem: 422 ``invalid_request``.
    """
    parsed = parse_object(raw)
    try:
        return Body(value=model.model_validate(parsed), digest=digest(parsed) if with_digest else "")
    except ValidationError as error:
        raise _refusal(error) from None


def _refusal(error: ValidationError) -> Problem:
    """What is wrong, unless that is so much that everybody would wait while it is listed."""
    if error.error_count() > MOST_LISTED:
        msg = f"{error.error_count()} things are wrong, too many to tell: send fewer requests to hear what they are"
        return invalid_at(["body"], msg)
    return invalid(field_problems(error.errors(include_input=False, include_url=False), "body"))


def _refuse_encoded(request: Request) -> None:
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise invalid_at(["header", "Content-Encoding"], "send the body as it is: no encoding is taken")


async def _pieces(request: Request, idle_s: float) -> AsyncGenerator[bytes]:
    """The body as it comes; who pauses for so long, takes many times as long in all, or has left is refused."""
    coming = aiter(request.stream())
    clock = asyncio.get_running_loop().time
    ends_at = clock() + IDLES * idle_s
    while True:
        try:
            piece = await asyncio.wait_for(anext(coming, None), min(idle_s, ends_at - clock()))
        except TimeoutError:
            whole = f"the body was not there after {IDLES * idle_s:g} s"
            pause = f"nothing more of the body came for {idle_s:g} s"
            raise _unfinished(f"{whole if clock() >= ends_at else pause}; send it again") from None
        except ClientDisconnect:
            raise _unfinished("the client left before the end of its body") from None
        if piece is None:
            return
        yield piece


def _unfinished(detail: str) -> Problem:
    return Problem("body_too_slow", detail, headers={"Connection": "close"})


async def read_limited(pieces: AsyncIterator[bytes], limit: int, take_place: Callable[[], Awaitable[None]]) -> bytes:
    """The body's bytes; more than ``limit`` of them are a 413. Before a long one is read on, it takes its place."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in pieces:
        if size < LONG <= size + len(chunk):
            await take_place()
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
        elif size > DRAIN_FACTOR * limit:
            break
    if size > limit:
        detail = f"the body is larger than {limit} bytes"
        raise Problem("payload_too_large", detail, headers={"Connection": "close"})
    return b"".join(chunks)
