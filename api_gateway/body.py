"""Request bodies: read up to the limit, parsed strictly, then validated; whatever the content type says."""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.requests import ClientDisconnect

from api_gateway.config import Settings
from api_gateway.problems import Problem, field_problems, invalid, invalid_at

LONG: Final = 100_000
"""Bodies of this many bytes or more are parsed in a thread, so that the event loop is not blocked."""

MOST_LISTED: Final = 25_000
"""Things wrong with one body that are listed, to tell the first: nothing else runs in the process meanwhile."""

DRAIN_FACTOR: Final = 10
"""How many times the limit is read and dropped, so that a client that is still sending can hear the refusal."""

EXACT: Final = 2**53
"""Up to here a double tells every integer. Beyond it is no count, and 1e308 would be 309 digits of it."""

BYTE_ORDER_MARKS: Final = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Body(Generic[M]):
    """A request's body.

    Args:
        value: The validated body.
        digest: SHA-256 of the parsed JSON in canonical form: equal for bodies that differ only in spelling, or in
            members that are null, at any depth. A null that is an item of a list counts. Empty without an
            ``Idempotency-Key``, which alone it is for.
    """

    value: M
    digest: str


def body_of(model: type[M]) -> Callable[[Request], Awaitable[Body[M]]]:
    """A dependency that reads a request's body as ``model``.

    It raises 408 ``body_too_slow``, 413 ``payload_too_large`` and 422 ``invalid_request``.
    """

    async def read(request: Request) -> Body[M]:
        settings: Settings = request.app.state.shared.settings
        _refuse_encoded(request)
        raw = await read_limited(_pieces(request, settings.body_idle_s), settings.max_body_bytes)
        read_it = partial(body_read, model, raw, with_digest="idempotency-key" in request.headers)
        return read_it() if len(raw) < LONG else await asyncio.to_thread(read_it)

    return read


def body_read(model: type[M], raw: bytes, *, with_digest: bool) -> Body[M]:
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
    """The body as it comes; a client that sends nothing for so long, or has left, is not waited for."""
    coming = aiter(request.stream())
    while True:
        try:
            piece = await asyncio.wait_for(anext(coming, None), idle_s)
        except TimeoutError:
            raise _unfinished(f"nothing more of the body came for {idle_s:g} s; send it again") from None
        except ClientDisconnect:
            raise _unfinished("the client left before the end of its body") from None
        if piece is None:
            return
        yield piece


def _unfinished(detail: str) -> Problem:
    return Problem("body_too_slow", detail, headers={"Connection": "close"})


async def read_limited(pieces: AsyncIterator[bytes], limit: int) -> bytes:
    """The body's bytes; more than ``limit`` of them are a 413."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in pieces:
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
        elif size > DRAIN_FACTOR * limit:
            break
    if size > limit:
        detail = f"the body is larger than {limit} bytes"
        raise Problem("payload_too_large", detail, headers={"Connection": "close"})
    return b"".join(chunks)


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in ``raw``; numbers with an integral value become integers, up to 2^53.

    Raises:
        Problem: It begins with a byte order mark, is not UTF-8, not JSON (NaN is not), holds a number beyond a
            double's range or a lone surrogate, nests deeper than 200 levels, or is no object.
    """
    if raw.startswith(BYTE_ORDER_MARKS):
        raise invalid_at(["body"], "begins with a byte order mark: send JSON in UTF-8 without one")
    try:
        parsed = _normal(from_json(raw, allow_inf_nan=False))
    except ValueError as error:
        raise invalid_at(["body"], f"not valid JSON in UTF-8: {_plain(str(error))}") from None
    if not isinstance(parsed, dict):
        raise invalid_at(["body"], "must be a JSON object")
    return cast("dict[str, Any]", parsed)


def digest(parsed: object) -> str:
    """SHA-256 of the canonical form of a parsed body, in hexadecimal.

    Written piece by piece: for a long body that costs more time than at once, in which other threads may run.
    """
    taken = hashlib.sha256()
    for piece in json.JSONEncoder(sort_keys=True).iterencode(_without_nulls(parsed)):
        taken.update(piece.encode())
    return taken.hexdigest()


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, list):
        return [_without_nulls(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {name: _without_nulls(member) for name, member in members.items() if member is not None}
    return value


def _plain(message: str) -> str:
    return message.replace("unexpected end of hex escape", "a lone surrogate, which is no character,")


def _normal(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _normal_number(value)
    if isinstance(value, list):
        return [_normal(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _normal(item) for key, item in cast("dict[str, Any]", value).items()}
    return value


def _normal_number(number: float) -> float | int:
    if not abs(number) <= sys.float_info.max:
        raise ValueError("a number is out of range")
    return int(number) if abs(number) <= EXACT and float(number).is_integer() else number
