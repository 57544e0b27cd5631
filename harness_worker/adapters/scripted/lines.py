"""A script file: JSONL, with one model reply per line.

An invalid line concerns only those who ask for it: other scripts may share the file, which may be read while it is
written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Discriminator, Field, NonNegativeInt, Tag, ValidationError, model_validator

from harness_worker.core.json_lines import numbered_lines, parsed
from harness_worker.core.prompting.prompt import RequestKind
from harness_worker.errors import ModelError
from harness_worker.validation import complaint

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


class _Place(BaseModel):
    """Where a reply belongs; ``kind`` says what it answers."""

    model_config = ConfigDict(frozen=True)

    script: str = "default"
    step: NonNegativeInt
    kind: RequestKind = RequestKind.STEP

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, line: object) -> object:
        """A member that is null counts as absent."""
        if not isinstance(line, dict):
            return line
        members = cast("dict[str, object]", line)
        return {name: value for name, value in members.items() if value is not None}

    @property
    def key(self) -> ScriptKey:
        """The key by which it is found."""
        return self.kind, self.script, self.step


class ScriptLine(_Place):
    """One reply: ``content``, or an ``error`` to fail with. ``latency_s`` is how long the whole call takes.

    A line of ``kind`` ``reflection`` or ``compaction`` is said before its step, one of ``judge`` by a judge, and one of
    ``memory`` once its turn has ended.
    """

    content: tuple[Block, ...] = ()
    stop_reason: str | None = None
    usage: ScriptUsage = ScriptUsage()
    latency_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    chunk_chars: Annotated[int, Field(gt=0)] | None = None
    error: str | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.error is None and "content" not in self.model_fields_set:
            raise ValueError("a line has content or an error")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFile:
    """A script file's lines.

    Args:
        lines: The replies.
        problems: What is wrong with a line, naming it, by the key that it has; ``None`` if its key cannot be read.
    """

    lines: Mapping[ScriptKey, ScriptLine]
    problems: Mapping[ScriptKey | None, str]

    def find(self, key: ScriptKey) -> ScriptLine | None:
        """The reply with that key; ``None`` if there is none.

        Raises:
            ModelError: The line is invalid, or is missing while another one is that might be it.
        """
        line = self.lines.get(key)
        problem = self.problems.get(key) or (self.problems.get(None) if line is None else None)
        if problem is not None:
            raise ModelError(problem)
        return line


def parse_script(file: str, data: bytes) -> ScriptFile:
    """Every line of a script file.

    Args:
        file: The file's name in error messages.
        data: The file's bytes; empty lines are skipped.
    """
    lines: dict[ScriptKey, ScriptLine] = {}
    problems: dict[ScriptKey | None, str] = {}
    for number, text in numbered_lines(data):
        where = f"{file}, line {number}"
        try:
            value = parsed(text)
        except ValueError as error:
            problems.setdefault(None, f"{where}: {error}")
            continue
        try:
            line = ScriptLine.model_validate(value)
        except ValidationError as invalid:
            told = "; ".join(_problem(error) for error in invalid.errors(include_url=False))
            problems.setdefault(_key(value), f"{where}: {told}")
            continue
        if lines.setdefault(line.key, line) != line:
            problems.setdefault(line.key, f"{where}: script {line.script!r} has {line.kind} {line.step} already")
    return ScriptFile(lines=lines, problems=problems)


def _key(value: object) -> ScriptKey | None:
    try:
        return _Place.model_validate(value).key
    except ValidationError:
        return None


def _problem(error: Mapping[str, Any]) -> str:
    place = ".".join(str(step) for step in error["loc"])
    return f"{place}: {complaint(error)}" if place else complaint(error)
