"""The body of a webhook: an event's type and time, and the turn as it is now."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from api_gateway.turns.answers import TurnSummary

MOST_CHARS: Final = 10_000
"""The most characters of a turn's input, and of its output, in a body; the rest can be read from the turn."""

_LONG: Final = ("input", "output_text")


class TurnTold(BaseModel):
    """The JSON body that is sent to an endpoint. ``timestamp`` is when the event happened, RFC 3339 UTC."""

    model_config = ConfigDict(frozen=True)

    type: str = Field(description="the event, such as `turn.completed`")
    timestamp: str
    truncated: bool = Field(description=f"whether input or output_text is longer than {MOST_CHARS} characters and cut")
    data: TurnSummary


def webhook_body(kind: str, timestamp: str, turn: TurnSummary) -> bytes:
    """The body of an event's webhook, as compact JSON."""
    cut = {name: text[:MOST_CHARS] for name, text in _texts(turn).items() if len(text) > MOST_CHARS}
    data = turn.model_copy(update=cut)
    return TurnTold(type=kind, timestamp=timestamp, truncated=bool(cut), data=data).model_dump_json().encode()


def _texts(turn: TurnSummary) -> dict[str, Any]:
    return {name: getattr(turn, name) for name in _LONG}
