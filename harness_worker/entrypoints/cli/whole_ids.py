"""Finds the full ids of turns and batches that were given by the end of their id."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from itertools import islice
from typing import Final

from harness_worker.client.client import GatewayClient, RequestRefused
from harness_worker.errors import ConfigError
from harness_worker.wire import JsonObject

LEAST: Final = 4
LOOKED_AT: Final = 1_000
_ABBREVIATED: Final = re.compile(r"[0-9a-f-]{1,35}")
_NO_ID: Final = re.compile(r"\.{0,2}|.*/.*", re.DOTALL)
"""What would make another path of the URL that is asked."""


def whole_id(client: GatewayClient, given: str) -> str:
    """The id of the one turn among the newest 1,000 whose id ends in ``given``; a whole id is returned as it is.

    A turn submitted by a Celery producer has an id that the producer chose, which may look like the end of another.

    Raises:
        ConfigError: There is no such turn, or there are several, or ``given`` is too short.
    """
    if _ABBREVIATED.fullmatch(given) and _is_there(client, given):
        return given
    return _whole(given, client.turns(), "turn", "turns")


def whole_batch_id(client: GatewayClient, given: str) -> str:
    """The id of the one batch among the newest 1,000 whose id ends in ``given``; a whole id is returned as it is.

    Raises:
        ConfigError: There is no such batch, or there are several, or ``given`` is too short.
    """
    return _whole(given, client.batches(), "batch", "batches")


def _whole(given: str, newest: Iterable[JsonObject], noun: str, nouns: str) -> str:
    if _NO_ID.fullmatch(given):
        raise ConfigError(f"{given!r} is no id of a {noun}: `harness {nouns} list` shows them")
    if not _ABBREVIATED.fullmatch(given):
        return given
    if len(given) < LEAST:
        raise ConfigError(f"{noun} {given!r}: give at least {LEAST} characters of the end of its id")
    found = [each["id"] for each in islice(newest, LOOKED_AT) if each["id"].endswith(given)]
    if not found:
        raise ConfigError(
            f"none of the newest {LOOKED_AT:,} {nouns} has an id that ends in {given!r}; "
            "an older one needs its whole id"
        )
    if len(found) > 1:
        raise ConfigError(
            f"{len(found)} {nouns} have ids that end in {given!r}: {', '.join(found[:3])}; give more of it"
        )
    return found[0]


def _is_there(client: GatewayClient, turn_id: str) -> bool:
    try:
        client.turn(turn_id)
    except RequestRefused as refused:
        if refused.status == HTTPStatus.NOT_FOUND:
            return False
        raise
    return True
