"""What a stream has passed on of what an agent says, so that its text is whole whatever hints were lost. Pure."""

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
        text: Never empty.
        begins: Whether a message begins with it; else it goes on with the one before.
        step: The step that says it; ``None`` for a text that the turn ends with and no step said.
    """

    text: str
    begins: bool
    step: int | None


class Speech:
    """What was passed on of the step at hand.

    A step's hints are forwarded until one is missed or the step is retried; sent text is never retracted.

    Args:
        hears_hints: Whether any count: not for who joins a turn in the middle.
    """

    def __init__(self, *, hears_hints: bool) -> None:
        self._hears_hints = hears_hints
        self._step = -1
        self._missed = -1
        self._attempt = 0
        self._counts = False
        self._said = ""
        self._before = ""

    def hear(self, kind: str, data: Data) -> Delta | None:
        """What to pass on of an event or a hint.

        Args:
            kind: Its type, of any kind.
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
                self._before, self._said = self._said or self._before, ""  # what is said next is another message
            case _:
                pass
        return None

    def end(self, turn: Turn) -> Delta | None:
        """What an answer has besides its last step's text: its sources, or why it was cut short."""
        is_told = not self._said and turn.output_text == self._before
        if turn.status not in ANSWERED or is_told:
            return None
        rest = self._rest(turn.output_text)
        return replace(rest, step=answering_step(turn)) if rest is not None and rest.begins else rest

    def _begin(self, step: int) -> None:
        if step > self._step:
            self._step, self._attempt, self._said = step, 0, ""
        self._counts = self._hears_hints and not self._said and step > self._missed

    def _hint(self, step: int, attempt: int, start: int, text: str) -> Delta | None:
        if step > self._step:
            self._missed = step
        if step != self._step or not self._counts:
            return None
        if start != len(self._said) or (self._said and attempt != self._attempt):
            self._counts = False
            return None
        self._attempt = attempt
        return self._pass_on(text)

    def _rest(self, text: str) -> Delta | None:
        """What is missing of a text; all of it if something else was said."""
        if not text.startswith(self._said):
            self._said = ""
        rest = text[len(self._said) :]
        return self._pass_on(rest) if rest else None

    def _pass_on(self, text: str) -> Delta:
        begins = not self._said
        self._said += text
        return Delta(text=text, begins=begins, step=self._step)
