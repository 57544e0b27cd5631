"""One turn as a page: the question, each step with its waves, calls and costs, and the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from rich.text import Text

from harness_worker.core.registration.content import compact_or_text
from harness_worker.entrypoints.plain import harmless, one_line
from harness_worker.entrypoints.view.columns import MAX_WIDTH, cut, wrapped
from harness_worker.entrypoints.view.lines import DETAIL_LINES, Marks
from harness_worker.entrypoints.view.questions import questions
from harness_worker.entrypoints.view.turn_facts import (
    changed_arguments,
    facts,
    model_calls,
    model_cost,
    score_line,
    span,
)
from harness_worker.entrypoints.view.turn_table import STYLES
from harness_worker.wire import JsonObject

LABEL: Final = 10


class TurnPage:
    """Draws turns.

    Args:
        width: The width available, in columns, of which at most 100 are used.
        marks: The signs for how a call ended.
    """

    def __init__(self, width: int, marks: Marks) -> None:
        self._width = min(width, MAX_WIDTH)
        self._marks = marks

    def draw(self, turn: JsonObject, events: Sequence[JsonObject]) -> Iterator[Text]:
        """The page's lines.

        Args:
            turn: The turn, as from ``GET /v1/turns/{id}``.
            events: All its events, which tell the time and cost of each model call, and what people changed.
        """
        turn, events = harmless(turn), harmless(list(events))
        yield from self._head(turn)
        yield from self._section("asked", turn["input"])
        models, changed = model_calls(events), changed_arguments(events)
        for step in sorted({*models, *(call["step"] for call in turn["calls"])}):
            yield Text()
            calls = [call for call in turn["calls"] if call["step"] == step]
            yield from self._step(step, models.get(step), calls, changed)
        if asked := questions(turn):
            yield from self._section("waits for approval", "\n".join(asked))
        if turn["output_text"]:
            yield from self._section("answered", turn["output_text"])
        if turn["citations"]:
            yield from self._section("cited", "\n".join(map(_cited, turn["citations"])))
        if turn["error"]:
            yield from self._section("error", f"{turn['error']['code']}: {turn['error']['message']}")
        if turn.get("scores"):
            yield from self._section("scores", "\n".join(map(score_line, turn["scores"])))

    def messages(self, turn: JsonObject) -> Iterator[Text]:
        """The lines of a turn's history, and of the context that the model was sent before it."""
        turn = harmless(turn)
        if turn["context"]:
            yield from self._section("context", "\n".join(turn["context"]))
        for message in turn["messages"]:
            yield Text()
            yield Text(message["role"], style="bold")
            for block in _blocks(message["content"]):
                yield from self._wrapped(block, 2)

    def _head(self, turn: JsonObject) -> Iterator[Text]:
        why = "" if turn["status"] == "completed" or not turn["stop_reason"] else f" ({turn['stop_reason']})"
        yield Text.assemble(
            (turn["id"], "bold"), "  ", (f"{turn['status']}{why}", STYLES.get(turn["status"], "")), no_wrap=True
        )
        for name, value in facts(turn).items():
            if value:
                rows = wrapped(value, self._width - LABEL - 2) or [value]
                for number, row in enumerate(rows):
                    yield Text(f"  {'' if number else name:<{LABEL}}{row}")

    def _section(self, title: str, text: str) -> Iterator[Text]:
        yield Text()
        yield Text(title, style="bold")
        yield from self._wrapped(text, 2)

    def _step(
        self, step: int, model: JsonObject | None, calls: list[JsonObject], changed: Mapping[str, JsonObject]
    ) -> Iterator[Text]:
        yield self._row(Text(f"step {step}", style="bold"), model_cost(model))
        if model and model["text"] and calls:
            yield from self._wrapped(model["text"], 2)
        for wave, together in groupby(calls, key=lambda call: call["wave"]):
            of_wave = list(together)
            yield self._row(Text(f"  wave {wave}"), span(of_wave))
            for call in of_wave:
                yield from self._call(call, changed.get(call["call_id"]))

    def _call(self, call: JsonObject, gave: JsonObject | None) -> Iterator[Text]:
        mark, style = self._marks.of(call["outcome"], is_error=call["is_error"])
        again = f"  attempt {call['attempt']}" if call["attempt"] > 1 else ""
        took = span([call])
        named = Text.assemble("    ", (mark, style), f" {call['call_id']:<5}{one_line(call['tool'])} ")
        room = self._width - named.cell_len - len(again) - len(took) - 2
        shown = cut(one_line(compact_or_text(call["arguments"])), max(room, 10))
        yield self._row(Text.assemble(named, (shown, "dim"), again), took)
        if gave is not None:
            told = f"changed by a person; the model gave {one_line(compact_or_text(gave))}"
            yield Text(" " * 11 + cut(told, self._width - 11), style="dim")
        if child_id := call.get("child_turn_id"):
            yield from self._wrapped(f"is the turn {child_id}", 11, 1, "dim")
        if call["is_error"]:
            yield from self._wrapped(f"{call['outcome']}: {call['content']}", 11, DETAIL_LINES, "dim")

    def _row(self, left: Text, right: str) -> Text:
        gap = max(1, self._width - left.cell_len - len(right))
        return Text.assemble(left, " " * gap if right else "", (right, "dim"))

    def _wrapped(self, text: str, indent: int, most: int | None = None, style: str = "") -> Iterator[Text]:
        for paragraph in text.splitlines():
            rows = wrapped(paragraph, self._width - indent, most) or [""]
            for row in rows:
                yield Text(" " * indent + row, style=style)


def _cited(citation: JsonObject) -> str:
    title = "" if citation["title"] == citation["id"] else f"  {one_line(citation['title'])}"
    return f"{citation['id']}{title}"


def _blocks(content: Any) -> Iterator[str]:  # noqa: ANN401 - a string or Anthropic's blocks
    if isinstance(content, str):
        yield content
        return
    for block in content:
        match block.get("type"):
            case "text":
                yield block["text"]
            case "tool_use":
                yield f"asks for {block['name']} {compact_or_text(block['input'])}  [{block['id']}]"
            case "tool_result":
                failed = " failed" if block.get("is_error") else ""
                yield f"result of {block['tool_use_id']}{failed}: {compact_or_text(block['content'])}"
            case kind:
                yield f"({kind})"
