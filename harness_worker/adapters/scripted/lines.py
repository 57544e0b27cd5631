"""A script file: JSONL, with one model reply per line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Discriminator, Field, NonNegativeInt, Tag, ValidationError, model_validator
from pydantic_core import from_json

from harness_worker.core.prompting.prompt import RequestKind
from harness_worker.errors import ModelError

ScriptKey: TypeAlias = tuple[RequestKind, str, int]
"""The key of a line: kind, script, step."""


class _Block(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", strict=True)


class TextBlock(_Block):
    """What the model says."""

    type: Literal["text"]
    text: str


class ToolUseBlock(_Block):
    """What the model asks for."""

    type: Literal["tool_use"]
    id: Annotated[str, Field(min_length=1)]
    name: str
    input: dict[str, Any]


class OtherBlock(_Block):
    """Any other block: thinking, citations."""

    type: str


def _block_tag(block: Any) -> str:  # noqa: ANN401 - any JSON value
    kind = cast("dict[str, Any]", block).get("type") if isinstance(block, dict) else None
    return kind if kind in ("text", "tool_use") else "other"


Block = Annotated[
    Annotated[TextBlock, Tag("text")] | Annotated[ToolUseBlock, Tag("tool_use")] | Annotated[OtherBlock, Tag("other")],
    Discriminator(_block_tag),
]


class ScriptUsage(BaseModel):
    """Token counts under Anthropic's names; other fields are ignored."""

    model_config = ConfigDict(frozen=True)

    input_tokens: NonNegativeInt | None = None
    output_tokens: NonNegativeInt | None = None
    cache_read_input_tokens: NonNegativeInt | None = None
    cache_creation_input_tokens: NonNegativeInt | None = None


class ScriptLine(BaseModel):
    """One reply: ``content``, or an ``error`` to fail with. ``latency_s`` is how long the whole call takes.

    A line of ``kind`` ``reflection`` or ``compaction`` is said before its step, one of ``judge`` by a judge, and one of
    ``memory`` once its turn has ended.
    """

    model_config = ConfigDict(frozen=True)

    script: str = "default"
    step: NonNegativeInt
    kind: RequestKind = RequestKind.STEP
    content: tuple[Block, ...] = ()
    stop_reason: str | None = None
    usage: ScriptUsage = ScriptUsage()
    latency_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    chunk_chars: Annotated[int, Field(gt=0)] | None = None
    error: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, line: object) -> object:
        """A member that is null counts as absent."""
        if not isinstance(line, dict):
            return line
        members = cast("dict[str, object]", line)
        return {name: value for name, value in members.items() if value is not None}

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.error is None and "content" not in self.model_fields_set:
            raise ValueError("a line has content or an error")
        return self

    @property
    def key(self) -> ScriptKey:
        """The key by which it is found."""
        return self.kind, self.script, self.step


def parse_script(file: str, data: bytes) -> Mapping[ScriptKey, ScriptLine]:
    """Every line of a script file.

    Args:
        file: The file's name in error messages.
        data: The file's bytes; empty lines are skipped.

    Raises:
        ModelError: A line is not a reply, or has the key of an earlier line; the message names file and line.
    """
    found: dict[ScriptKey, ScriptLine] = {}
    for number, text in _numbered(data):
        line = _line(f"{file}, line {number}", text)
        if line.key in found:
            raise ModelError(f"{file}, line {number}: script {line.script!r} has {line.kind} {line.step} already")
        found[line.key] = line
    return found


def _numbered(data: bytes) -> Iterator[tuple[int, bytes]]:
    return ((number, text) for number, text in enumerate(data.split(b"\n"), start=1) if text.strip())


def _line(where: str, text: bytes) -> ScriptLine:
    try:
        return ScriptLine.model_validate(_json(text))
    except ValidationError as invalid:
        problems = "; ".join(_problem(error) for error in invalid.errors(include_url=False))
        raise ModelError(f"{where}: {problems}") from None
    except ValueError as error:
        raise ModelError(f"{where}: not JSON: {error}") from None


def _json(text: bytes) -> object:
    """The JSON value. Refuses ``1e999``, which is well-formed but too large for a database's JSON."""
    value: object = from_json(text, allow_inf_nan=False)
    json.dumps(value, allow_nan=False)
    return value


def _problem(error: Mapping[str, Any]) -> str:
    place = ".".join(str(step) for step in error["loc"])
    return f"{place}: {error['msg']}" if place else str(error["msg"])
