"""Server-sent events on the wire: frames, headers, and which requests ask for them."""

from __future__ import annotations

import json
import re
from typing import Final, TypeAlias

from api_gateway.streams.live import LiveEvent
from api_gateway.turns.answers import Event
from harness_worker.wire import rfc3339

OPENING: Final = ": open\n\n"
HEARTBEAT: Final = ": heartbeat\n\n"
SSE_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Headers that keep proxies between the gateway and the client from caching or buffering a stream."""

_BREAKS: Final = {char: f"\\u{ord(char):04x}" for char in "\u0085\u2028\u2029"}
"""Characters that JSON need not escape, and that some clients take for the end of a line."""

Told: TypeAlias = Event | LiveEvent
"""An event of the journal, or a live event or hint."""

_WEIGHT: Final = re.compile(r"\bq\s*=\s*(\d(?:\.\d{0,3})?)\s*(?:;|$)")


def unbroken(document: str) -> str:
    """The JSON document, with every character escaped at which a client might break lines."""
    for char, escaped in _BREAKS.items():
        document = document.replace(char, escaped)
    return document


def data_line(document: str) -> str:
    """The last line of a frame, which holds a JSON document, and the end of the frame."""
    return f"data: {unbroken(document)}\n\n"


def wants_stream(accept: str) -> bool:
    """Whether an ``Accept`` header prefers server-sent events to JSON: by weight, then by order."""
    wishes = [_wish(part) for part in accept.lower().split(",")]
    asked = [wish for wish in wishes if wish[0] in ("text/event-stream", "application/json") and wish[1] > 0]
    return bool(asked) and max(asked, key=lambda wish: wish[1])[0] == "text/event-stream"


def _wish(part: str) -> tuple[str, float]:
    """A media range and its weight; a weight that is not a number counts as 1."""
    kind, _, options = part.partition(";")
    weight = _WEIGHT.search(options)
    return kind.strip(), float(weight[1]) if weight else 1.0


def framed(event: Told) -> str:
    """An event or a hint as a frame."""
    data = event.model_dump_json() if isinstance(event, Event) else _json(event)
    identity = "" if event.seq is None else f"id: {event.seq}\n"
    return f"event: {event.type}\n{identity}{data_line(data)}"


def _json(event: LiveEvent) -> str:
    head = {} if event.seq is None else {"seq": event.seq}
    body = {**head, "type": event.type, "turn_id": event.turn_id, "at": rfc3339(event.at)}
    return json.dumps({**body, "data": json.loads(event.data)}, ensure_ascii=False, separators=(",", ":"))
