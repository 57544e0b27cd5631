"""A turn's pieces as OpenAI's clients are told them: as a response's events, or as chunks of a completion."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from pydantic import BaseModel

from api_gateway.answers import Turn
from api_gateway.openai_facade.answers import OutputItem, OutputText
from api_gateway.openai_facade.from_turn import (
    ANSWERED,
    completion_usage,
    ended_calls,
    finish_reason,
    items_of,
    message_id,
    message_of,
    response_of,
    seconds,
    without_answer,
)
from api_gateway.openai_facade.running import Piece
from api_gateway.openai_facade.text_stream import Delta
from api_gateway.sse import HEARTBEAT, data_line
from harness_worker.wire import TurnStatus

DONE: Final = "data: [DONE]\n\n"
_LAST: Final = {TurnStatus.COMPLETED: "response.completed", TurnStatus.FAILED: "response.failed"}


async def response_frames(turn: Turn, pieces: AsyncIterator[Piece]) -> AsyncIterator[str]:
    """The events of a response; one that waits for approval, or whose gateway stops, ends ``response.incomplete``."""
    told = _ResponseEvents(turn.id)
    yield told.lifecycle("response.created", turn, output=[])  # what there is already is told item by item
    yield told.lifecycle("response.in_progress", turn, output=[])
    async for piece in pieces:
        if piece is None:
            yield HEARTBEAT
        elif isinstance(piece, Delta):
            for frame in told.say(piece):
                yield frame
        else:
            turn = piece
            for frame in told.calls(turn):
                yield frame
    for frame in told.close():
        yield frame
    yield told.lifecycle(_LAST.get(turn.status, "response.incomplete"), turn)


class _ResponseEvents:
    """Numbers the events, and holds the message that is being said."""

    def __init__(self, turn_id: str) -> None:
        self._turn_id = turn_id
        self._sent = 0
        self._items = 0
        self._calls = 0
        self._said: str | None = None

    def lifecycle(self, kind: str, turn: Turn, **instead: object) -> str:
        """An event about the whole response."""
        return self._event(kind, response=response_of(turn).model_copy(update=instead))

    def say(self, delta: Delta) -> Iterator[str]:
        """Go on with a message, or begin one."""
        if delta.begins:
            yield from self.close()
        if self._said is None:
            self._said = ""
            yield self._item("added", message_of(self._turn_id, self._items, "", "in_progress"))
            yield self._event("response.content_part.added", **self._part, part=OutputText(text=""))
        self._said += delta.text
        yield self._event("response.output_text.delta", **self._part, delta=delta.text, logprobs=[])

    def close(self) -> Iterator[str]:
        """End the message that is being said."""
        if self._said is None:
            return
        text, self._said = self._said, None
        yield self._event("response.output_text.done", **self._part, text=text, logprobs=[])
        yield self._event("response.content_part.done", **self._part, part=OutputText(text=text))
        yield self._item("done", message_of(self._turn_id, self._items, text, "completed"))
        self._items += 1

    def calls(self, turn: Turn) -> Iterator[str]:
        """Tell the calls that have ended since the last time."""
        for call in ended_calls(turn.calls, self._calls):
            yield from self.close()
            self._calls += 1
            for item in items_of(turn.id, call):
                yield self._item("added", item)
                yield self._item("done", item)
                self._items += 1

    @property
    def _part(self) -> dict[str, Any]:
        item_id = message_id(self._turn_id, self._items)
        return {"item_id": item_id, "output_index": self._items, "content_index": 0}

    def _item(self, what: str, item: OutputItem) -> str:
        return self._event(f"response.output_item.{what}", output_index=self._items, item=item)

    def _event(self, kind: str, **data: object) -> str:
        self._sent += 1
        return f"event: {kind}\n{_data({'type': kind, 'sequence_number': self._sent - 1, **data})}"


async def chat_frames(turn: Turn, pieces: AsyncIterator[Piece], *, tells_usage: bool) -> AsyncIterator[str]:
    """The chunks of a completion; a turn without an answer ends with an error, which the client raises."""
    yield _chunk(turn, {"role": "assistant", "content": ""})
    says = False
    async for piece in pieces:
        if piece is None:
            yield HEARTBEAT
        elif isinstance(piece, Delta):
            gap = "\n\n" if says and piece.begins else ""
            says = True
            yield _chunk(turn, {"content": gap + piece.text})
        else:
            turn = piece
    if turn.status not in ANSWERED:
        yield _data(without_answer(turn).openai_document())
        return
    yield _chunk(turn, {}, finish_reason(turn))
    if tells_usage:
        yield _data({**_head(turn), "choices": [], "usage": completion_usage(turn.usage)})
    yield DONE


def _chunk(turn: Turn, delta: dict[str, str], reason: str | None = None) -> str:
    return _data({**_head(turn), "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


def _head(turn: Turn) -> dict[str, object]:
    created = seconds(turn.created_at)
    return {"id": turn.id, "object": "chat.completion.chunk", "created": created, "model": turn.agent}


def _data(body: dict[str, Any]) -> str:
    return data_line(json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=_plain))


def _plain(model: BaseModel) -> object:
    return model.model_dump()
