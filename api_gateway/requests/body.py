"""Request bodies: read within limits of size and time, parsed strictly, then validated; Content-Type is ignored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from api_gateway.problems import Problem, field_problems, invalid, invalid_at
from api_gateway.requests.json_object import digest, parse_object
from api_gateway.requests.places import BodyPlaces

LONG: Final = 100_000
"""Bodies of this many bytes or more need a place, and are parsed in a thread so that the event loop is not blocked."""

MOST_LISTED: Final = 25_000
"""The most errors of one body that are listed, to report the first: the process does nothing else meanwhile."""

DRAIN_FACTOR: Final = 10
"""How many times the limit is read and dropped, so that a client that is still sending can receive the refusal."""

IDLES: Final = 10
"""How long a whole body may take, as a multiple of how long its client may pause: otherwise one byte a pause would hold
a connection for ever."""

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Body(Generic[M]):
    """A request's body.

    Args:
        value: The validated body.
        digest: SHA-256 of the parsed JSON in canonical form: equal for bodies that differ only in spelling, or in
            members that are null, at any depth. A null in a list counts. Empty if no digest was asked for.
    """

    value: M
    digest: str


async def read_body(
    model: type[M], request: Request, places: BodyPlaces, *, most_bytes: int, idle_s: float, with_digest: bool
) -> Body[M]:
    """Read a request's body as ``model``.

    Args:
        model: The model that the body must fit.
        request: The request, which the guard has let in.
        places: The places for long bodies.
        most_bytes: How long the body may be, in bytes.
        idle_s: How long the client may pause, in seconds.
        with_digest: Whether the digest is needed.

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
    """Parse and validate the body in ``raw``.

    Raises:
        Problem: 422 ``invalid_request``.
    """
    parsed = parse_object(raw)
    try:
        return Body(value=model.model_validate(parsed), digest=digest(parsed) if with_digest else "")
    except ValidationError as error:
        raise _refusal(error) from None


def _refusal(error: ValidationError) -> Problem:
    """The problem that lists what is wrong, or only how much, if listing it would hold up every other request."""
    if error.error_count() > MOST_LISTED:
        msg = f"{error.error_count()} things are wrong, too many to list: send fewer requests to see what they are"
        return invalid_at(["body"], msg)
    return invalid(field_problems(error.errors(include_input=False, include_url=False), "body"))


def _refuse_encoded(request: Request) -> None:
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise invalid_at(["header", "Content-Encoding"], "send the body as it is: no encoding is accepted")


async def _pieces(request: Request, idle_s: float) -> AsyncGenerator[bytes]:
    """The body as it comes; refused if its client pauses for ``idle_s``, takes ``IDLES`` times as long, or leaves."""
    clock = asyncio.get_running_loop().time
    ends_at = clock() + IDLES * idle_s
    async with aclosing(request.stream()) as coming:
        while True:
            try:
                async with asyncio.timeout(min(idle_s, ends_at - clock())):
                    piece = await anext(coming, None)
            except TimeoutError:
                whole = f"the body was not complete after {IDLES * idle_s:g} s"
                pause = f"nothing more of the body came for {idle_s:g} s"
                raise _unfinished(f"{whole if clock() >= ends_at else pause}; send it again") from None
            except ClientDisconnect:
                raise _unfinished("the client left before the end of its body") from None
            if piece is None:
                return
            yield piece


def _unfinished(detail: str) -> Problem:
    return Problem("body_too_slow", detail, headers={"Connection": "close"})


async def read_limited(pieces: AsyncGenerator[bytes], limit: int, take_place: Callable[[], Awaitable[None]]) -> bytes:
    """The body's bytes; more than ``limit`` are a 413. A body that proves long takes a place before it is read on."""
    chunks: list[bytes] = []
    size = 0
    async with aclosing(pieces):
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
