"""What the API answers about what turns have used."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from api_gateway.requests.fields import Count
from api_gateway.turns.answers import Answer, Usage

ModelCallKind: TypeAlias = Literal["step", "reflection", "compaction"]


class ModelCall(Answer):
    """One answer of a model; cached tokens are not in ``input_tokens``."""

    step: int
    kind: ModelCallKind
    model: str | None = Field(description="null if a version before this one told it")
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    dollars: float = 0.0
    at: str


class ToolUsage(Answer):
    """The calls of one tool that have ended."""

    tool: str
    calls: Count
    failures: int = Field(description="how many of them were told to the model as errors; denied ones too")
    elapsed_ms: float = Field(description="how long they ran, together")


class TurnUsage(Answer):
    """What a turn has used so far: all in all, and by its own calls of models and tools."""

    turn_id: str
    total: Usage = Field(description="the turn's `usage`: also what the turns that it asked for have used")
    model_calls: list[ModelCall]
    tools: list[ToolUsage]


class UsageSum(Usage):
    """What turns have used together; cached tokens are not in ``input_tokens``."""

    turns: int = 0


class UsageGroup(UsageSum):
    """The sum of one group."""

    key: str | None = Field(description="null: of those that have none")


class UsageReport(Answer):
    """Sums by group, those that cost most first, of days the newest; ``total`` is of all groups, shown or not."""

    begin: str = Field(serialization_alias="from")
    end: str = Field(serialization_alias="to")
    by: str
    data: list[UsageGroup]
    groups: int = Field(description="how many there are, shown or not")
    total: UsageSum
