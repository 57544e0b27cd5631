"""A turn's pieces in the formats of OpenAI's streams: the events of a response, or the chunks of a completion."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Final

from pydantic_core import to_json

from api_gateway.concurrency.patience import beating
from api_gateway.openai_facade.answers import ItemStatus, OutputItem, OutputText
from api_gateway.openai_facade.from_turn import (
    ANSWERED,
    answering_step,
    completion_usage,
    ended_calls,
    finish_reason,
    items_of,
    message_id,
    message_of,
    message_status,
    output_of,
    response_of,
    seconds,
    without_answer,
)
from api_gateway.openai_facade.running import Piece
from api_gateway.openai_facade.text_stream import Delta
from api_gateway.streams.sse import HEARTBEAT, data_line
from api_gateway.turns.answers import Turn
from api_gateway.turns.store import Terms
from harness_worker.wire import TurnStatus

DONE: Final = "data: [DONE]\n\n"
_BEGUN: Final[Mapping[str, object]] = {
    "status": "in_progress",
    "completed_at": None,
    "error": None,
    "incomplete_details": None,
    "output": [],
}
"""How a stream begins, wherever its turn stands; output that already exists follows item by item."""
_LAST: Final = {TurnStatus.COMPLETED: "response.completed", TurnStatus.FAILED: "response.failed"}


async def with_heartbeats(frames: AsyncGenerator[str], every_s: float) -> AsyncGenerator[str]:
    """The frames, and a heartbeat whenever none came for ``every_s`` seconds, whatever happened meanwhile."""
    async with aclosing(beating(frames, every_s)) as told:
        async for frame in told:
            yield HEARTBEAT if frame is None else frame


async def response_frames(turn: Turn, terms: Terms, pieces: AsyncGenerator[Piece]) -> AsyncGenerator[str]:
    """The events of a response; if it waits for approval or the gateway stops, the last is ``response.incomplete``."""
    told = _ResponseEvents(turn.id, terms)
    yield told.lifecycle("response.created", turn, **_BEGUN)
    yield told.lifecycle("response.in_progress", turn, **_BEGUN)
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, Delta):
                for frame in told.say(piece):
                    yield frame
            else:
                turn = piece
                for frame in told.calls(turn):
                    yield frame
    for frame in told.end(turn):
        yield frame


class _ResponseEvents:
    """Makes the events of one response: numbers them and their items, and keeps the message that was begun last."""

    def __init__(self, turn_id: str, terms: Terms) -> None:
        self._turn_id = turn_id
        self._terms = terms
        self._sent = 0
        self._items = 0
        self._calls = 0
        self._begun: Counter[str] = Counter()
        self._is_open = False
        self._item_id = ""
        self._text = ""

    def lifecycle(self, kind: str, turn: Turn, **instead: object) -> str:
        """An event about the whole response."""
        return self._event(kind, response=response_of(turn, self._terms).model_copy(update=instead))

    def say(self, delta: Delta) -> Iterator[str]:
        """Continue the open message, or begin one."""
        if delta.begins:
            yield from self._close("completed")
        if not self._is_open:
            self._is_open, self._item_id, self._text = True, self._new_id(delta.step), ""
            yield self._item("added", message_of(self._item_id, "", "in_progress"))
            yield self._event("response.content_part.added", **self._part, part=OutputText(text=""))
        self._text += delta.text
        yield self._event("response.output_text.delta", **self._part, delta=delta.text, logprobs=[])

    def calls(self, turn: Turn) -> Iterator[str]:
        """The items of the calls that have ended since the last time."""
        for call in ended_calls(turn.calls, self._calls):
            is_cut = turn.status.is_final and turn.output_text == self._text  # a reply whose calls never ran
            yield from self._close(message_status(turn.status) if is_cut else "completed")
            self._calls += 1
            for item in items_of(turn.id, call):
                yield self._item("added", item)
                yield self._item("done", item)
                self._items += 1

    def end(self, turn: Turn) -> Iterator[str]:
        """End the open message, and send the whole response."""
        yield from self._close(message_status(turn.status) if turn.status.is_final else "completed")
        output = output_of(turn)
        if turn.output_text and turn.output_text == self._text and answering_step(turn) is not None:
            output[-1] = output[-1].model_copy(update={"id": self._item_id})  # the step may have been asked anew
        yield self.lifecycle(_LAST.get(turn.status, "response.incomplete"), turn, output=output)

    def _close(self, status: ItemStatus) -> Iterator[str]:
        if not self._is_open:
            return
        self._is_open = False
        yield self._event("response.output_text.done", **self._part, text=self._text, logprobs=[])
        yield self._event("response.content_part.done", **self._part, part=OutputText(text=self._text))
        yield self._item("done", message_of(self._item_id, self._text, status))
        self._items += 1

    def _new_id(self, step: int | None) -> str:
        """The id of a step's message; another one if a model that was asked again says something else in the step."""
        item_id = message_id(self._turn_id, step)
        self._begun[item_id] += 1
        return item_id if self._begun[item_id] == 1 else f"{item_id}.{self._begun[item_id]}"

    @property
    def _part(self) -> dict[str, Any]:
        return {"item_id": self._item_id, "output_index": self._items, "content_index": 0}

    def _item(self, what: str, item: OutputItem) -> str:
        return self._event(f"response.output_item.{what}", output_index=self._items, item=item)

    def _event(self, kind: str, **data: object) -> str:
        self._sent += 1
        return f"event: {kind}\n{_data({'type': kind, 'sequence_number': self._sent - 1, **data})}"


async def chat_frames(turn: Turn, pieces: AsyncGenerator[Piece], *, tells_usage: bool) -> AsyncGenerator[str]:
    """The chunks of a completion; if the turn has no answer, the last is an error, which the client raises."""
    yield _chunk(turn, {"role": "assistant", "content": ""})
    says = False
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, Delta):
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
    return data_line(to_json(body).decode())
