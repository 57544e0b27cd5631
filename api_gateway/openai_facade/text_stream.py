"""Tracks how much of an agent's text a stream has passed on, so that none is missing if hints are lost. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from api_gateway.openai_facade.from_turn import ANSWERED, answering_step
from api_gateway.turns.answers import Turn

Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A piece of text.

    Args:
        text: The text, never empty.
        begins: Whether it begins a message; otherwise it continues the previous piece's.
        step: The step that says it; ``None`` for a final text that no step said.
    """

    text: str
    begins: bool
    step: int | None


class Speech:
    """What was passed on of the current step's text.

    A step's hints are forwarded until one is missed or the step is retried; sent text is never retracted.

    Args:
        hears_hints: Whether hints are forwarded at all: not to a client that joins a turn in the middle.
    """

    def __init__(self, *, hears_hints: bool) -> None:
        self._hears_hints = hears_hints
        self._step = -1
        self._attempt = 0
        self._counts = False
        self._said = ""
        self._before = ""

    def hear(self, kind: str, data: Data) -> Delta | None:
        """The text to pass on after an event or a hint, if any.

        Args:
            kind: Its type; others than those of text are ignored.
            data: Its data.
        """
        match kind:
            case "step.started" | "turn.redelivered":
                self._begin(data["step"])
            case "model.delta":
                return self._hint(data["step"], data["attempt"], data.get("start", -1), data["text"])
            case "model.completed":
                self._counts = False
                return self._rest(data["text"])
            case "wave.completed":
                self._before, self._said = self._said or self._before, ""  # the next text is another message
            case _:
                pass
        return None

    def end(self, turn: Turn) -> Delta | None:
        """What the answer has beyond the text passed on: its sources, or why it was cut short."""
        is_told = not self._said and turn.output_text == self._before
        if turn.status not in ANSWERED or is_told:
            return None
        rest = self._rest(turn.output_text)
        return replace(rest, step=answering_step(turn)) if rest is not None and rest.begins else rest

    def _begin(self, step: int) -> None:
        if step > self._step:
            self._step, self._attempt, self._said = step, 0, ""
        self._counts = self._hears_hints and not self._said

    def _hint(self, step: int, attempt: int, start: int, text: str) -> Delta | None:
        if step != self._step or not self._counts:
            return None
        if start != len(self._said) or (self._said and attempt != self._attempt):
            self._counts = False
            return None
        self._attempt = attempt
        return self._pass_on(text)

    def _rest(self, text: str) -> Delta | None:
        """The part of a text that was not passed on; all of it if something else was passed on instead."""
        if not text.startswith(self._said):
            self._said = ""
        rest = text[len(self._said) :]
        return self._pass_on(rest) if rest else None

    def _pass_on(self, text: str) -> Delta:
        begins = not self._said
        self._said += text
        return Delta(text=text, begins=begins, step=self._step)
