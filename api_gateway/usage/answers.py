"""The API's answers about usage."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from api_gateway.turns.answers import Answer, Usage

ModelCallKind: TypeAlias = Literal["step", "reflection", "compaction"]


class ModelCall(Answer):
    """One answer of a model; ``input_tokens`` does not include cached tokens."""

    step: int
    kind: ModelCallKind
    model: str | None = Field(description="null if an earlier version made the call")
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    dollars: float = 0.0
    at: str


class ToolUsage(Answer):
    """The ended calls of one tool."""

    tool: str
    calls: int
    failures: int = Field(description="how many of them were errors to the model, including denied ones")
    elapsed_ms: float = Field(description="how long they ran in total")


class TurnUsage(Answer):
    """What a turn has used so far: in total, and by its own calls of models and tools."""

    turn_id: str
    total: Usage = Field(description="the turn's `usage`, which includes that of the turns it asked for")
    model_calls: list[ModelCall]
    tools: list[ToolUsage]


class UsageSum(Usage):
    """What turns have used together; ``input_tokens`` does not include cached tokens."""

    turns: int = 0


class UsageGroup(UsageSum):
    """The sum of one group."""

    key: str | None = Field(description="the value that the turns have in common; null for turns that have none")


class UsageReport(Answer):
    """Sums by group, the costliest group first, or the newest day; ``total`` covers all groups, shown or not."""

    begin: str = Field(serialization_alias="from")
    end: str = Field(serialization_alias="to")
    by: str
    data: list[UsageGroup]
    groups: int = Field(description="how many groups there are, shown or not")
    total: UsageSum
