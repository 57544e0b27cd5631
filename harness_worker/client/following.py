"""A turn's events and a batch's results as they come, each once and in order, through the gateway's restarts."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial
from typing import Final

import httpx2

from harness_worker.client.answers import (
    RequestRefused,
    StackUnreachable,
    body_of,
    events_in,
    has_type,
    object_in,
    parsed,
    unexpected,
)
from harness_worker.client.http import Http, batch_path, turn_path
from harness_worker.client.patience import Outage, Patience
from harness_worker.wire import TERMINAL_EVENTS, JsonObject, has_ended

STREAM_TIMEOUT_S: Final = 75.0
"""How long a stream of events may be silent, in seconds; longer than the largest ``HARNESS_SSE_HEARTBEAT_S``."""

AGAIN_S: Final = 0.1
SELDOM_S: Final = 1.0
"""Seconds between two requests for a turn's events: at first, and while nothing new comes."""

PAGE: Final = 1_000


def is_hint(event: JsonObject) -> bool:
    """Whether an event is only sent live: it has no ``seq``, and is not in the journal."""
    return "seq" not in event


def recorded_events(http: Http, patiently: Patience, turn_id: str, after: int) -> Generator[JsonObject]:
    """Every event above ``after`` that exists now, over as many pages as it takes."""
    cursor: int | None = after
    while cursor is not None:
        asked = {"after": cursor, "limit": PAGE}
        page = patiently(partial(http.send, "GET", turn_path(turn_id, "/events"), "data", params=asked))
        yield from page["data"]
        cursor = page["next"]


def live_events(http: Http, patiently: Patience, turn_id: str, after: int) -> Generator[JsonObject]:
    """Every durable event of a turn above ``after``, until its last, and live hints, which are never repeated.

    A gateway that does not stream is polled.

    Raises:
        StackUnreachable: The gateway went away and did not come back in time.
        RequestRefused: The gateway does not know the turn, or refuses to show it.
    """
    outage, pause_s = Outage(patiently), AGAIN_S
    while True:
        known = after
        try:
            for number, event in enumerate(_live(http, turn_id, after)):
                if event is None:
                    outage = Outage(patiently) if number else outage
                    continue
                outage, after = Outage(patiently), event.get("seq", after)
                yield event
                if event["type"] in TERMINAL_EVENTS:
                    return
            if _is_over(http, turn_id, after):
                return
        except (StackUnreachable, RequestRefused) as refused:
            outage.endure(refused)
        else:
            outage = Outage(patiently)
            pause_s = AGAIN_S if after > known else min(SELDOM_S, pause_s * 2)
            patiently.clock.wait(pause_s)


def batch_results(http: Http, patiently: Patience, batch_id: str, after: str) -> Generator[JsonObject]:
    """The ended turns of a batch, in order, as ``{custom_id, turn}``; only those after the turn ``after``.

    Raises:
        StackUnreachable: The gateway went away and did not come back in time.
        RequestRefused: The gateway does not know the batch or the turn, or refuses to show them.
    """
    outage = Outage(patiently)
    while True:
        known = after
        try:
            for line in _lines(http, batch_id, after):
                after = line["turn"]["id"]
                yield line
        except (StackUnreachable, RequestRefused) as refused:
            outage = outage if after == known else Outage(patiently)
            outage.endure(refused)
        else:
            return


def _live(http: Http, turn_id: str, after: int) -> Iterator[JsonObject | None]:
    """Every event above ``after`` as it comes, until the turn's last one or until the gateway ends the stream.

    ``None`` is a comment: a stream opens with one, and further ones are heartbeats.
    """
    asked = {"params": {"after": after}, "headers": {"Accept": "text/event-stream"}}
    timeout = httpx2.Timeout(http.timeout_s, read=STREAM_TIMEOUT_S)
    with http.streamed(turn_path(turn_id, "/events"), timeout=timeout, **asked) as response:
        if has_type(response, "text/event-stream"):
            yield from events_in(response)
        elif response.read():
            yield from body_of(response, "data")["data"]


def _lines(http: Http, batch_id: str, after: str) -> Iterator[JsonObject]:
    asked = {"after": after} if after else None
    with http.streamed(batch_path(batch_id, "/results"), params=asked) as response:
        if not has_type(response, "application/x-ndjson"):
            raise unexpected(response)
        for line in filter(None, response.iter_lines()):
            found = parsed(line)
            if found is None:  # a proxy may have cut the stream within it, which then looks like an end
                raise http.unreachable("the results were cut off")
            yield object_in(found, "turn", response)


def _is_over(http: Http, turn_id: str, after: int) -> bool:
    if not has_ended(http.send("GET", turn_path(turn_id))):
        return False
    return not http.send("GET", turn_path(turn_id, "/events"), "data", params={"after": after, "limit": 1})["data"]
