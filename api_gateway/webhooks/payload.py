"""The body of a webhook: an event's type and time, and the turn as it is now."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from api_gateway.turns.answers import RequiredAction, TurnSummary

MOST_CHARS: Final = 10_000
"""The most characters in a body of a turn's input, of its output, and of all arguments that wait for an approval.

Receivers refuse long bodies, and would then never hear that a person is needed. The turn itself has everything.
"""

_LONG: Final = ("input", "output_text")


class TurnTold(BaseModel):
    """The JSON body that is sent to an endpoint. ``timestamp`` is when the event happened, RFC 3339 UTC."""

    model_config = ConfigDict(frozen=True)

    type: str = Field(description="the event, such as `turn.completed`")
    timestamp: str
    truncated: bool = Field(
        description=f"whether input or output_text is cut to {MOST_CHARS} characters, or arguments of calls that wait "
        "for an approval are null because they are longer than that together"
    )
    data: TurnSummary


def webhook_body(kind: str, timestamp: str, turn: TurnSummary) -> bytes:
    """The body of an event's webhook, as compact JSON."""
    cut = {**_cut_texts(turn), **_cut_arguments(turn)}
    data = turn.model_copy(update=cut)
    return TurnTold(type=kind, timestamp=timestamp, truncated=bool(cut), data=data).model_dump_json().encode()


def _cut_texts(turn: TurnSummary) -> dict[str, Any]:
    texts: dict[str, str] = {name: getattr(turn, name) for name in _LONG}
    return {name: text[:MOST_CHARS] for name, text in texts.items() if len(text) > MOST_CHARS}


def _cut_arguments(turn: TurnSummary) -> dict[str, Any]:
    """The calls that wait for a person, with arguments only as far as there is room; empty if there is for all."""
    waiting: Sequence[RequiredAction] = [*turn.required_actions, *turn.subagent_actions]
    lengths = list(accumulate(len(json.dumps(each.arguments, ensure_ascii=False)) for each in waiting))
    if not lengths or lengths[-1] <= MOST_CHARS:
        return {}
    shown = [
        each if length <= MOST_CHARS else each.model_copy(update={"arguments": None})
        for each, length in zip(waiting, lengths, strict=True)
    ]
    own = len(turn.required_actions)
    return {"required_actions": shown[:own], "subagent_actions": shown[own:]}
