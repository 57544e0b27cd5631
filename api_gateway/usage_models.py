"""What is asked and answered about what turns have used."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from api_gateway.models import Usage
from api_gateway.problems import invalid_at
from api_gateway.requests import METADATA_PREFIX, Count, Narrowing, Number

USUAL_S: Final = 30 * 86_400.0
LONGEST_S: Final = 366 * 86_400.0
BEYOND_S: Final = 250_000_000_000.0
"""Seconds since the epoch that no calendar of ours has."""

MOST_GROUPS: Final = 1_000

COLUMNS: Final = ("agent", "day", "model", "session", "status")
"""What turns may be grouped by, besides their metadata."""

ModelCallKind: TypeAlias = Literal["step", "reflection", "compaction"]

_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d([Tt ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([Zz]|[+-]\d\d:\d\d))?", re.ASCII)


def moment(text: object) -> object:
    """A time of RFC 3339, or a day for its beginning in UTC, in seconds since the epoch.

    Raises:
        ValueError: It is neither.
    """
    if not isinstance(text, str):
        return text
    spaced = re.sub(r" (?=\d\d:\d\d$)", "+", text)  # a plus in a URL is a space
    try:
        at = _read(spaced.upper()) if _MOMENT.fullmatch(spaced) else -1.0
    except ValueError:
        at = -1.0
    if not 0.0 <= at < BEYOND_S:
        raise ValueError("give a time with its zone, such as 2026-01-31T18:00:00Z, or a day, 2026-01-31")
    return at


def _read(text: str) -> float:
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _grouping(by: str) -> str:
    if "\0" not in by and (by in COLUMNS or by.removeprefix(METADATA_PREFIX) not in ("", by)):
        return by
    raise ValueError(f"give {', '.join(COLUMNS)} or {METADATA_PREFIX}KEY")


Moment = Annotated[
    float, BeforeValidator(moment), WithJsonSchema({"type": "string", "examples": ["2026-01-31T18:00:00Z"]})
]


class UsageQuery(Narrowing):
    """Whose turns, of which time, added up by what."""

    begin: Moment | None = Field(
        default=None, alias="from", description="turns made then or later: RFC 3339. Default: 30 days before `to`"
    )
    end: Moment | None = Field(default=None, alias="to", description="turns made before: RFC 3339. Default: now")
    by: Annotated[str, AfterValidator(_grouping)] = Field(
        default="agent", description="`agent`, `day` (UTC), `model`, `session`, `status`, `metadata.KEY`"
    )
    limit: Annotated[int, Number, Field(ge=1, le=MOST_GROUPS)] = Field(
        default=MOST_GROUPS, description="how many groups: those that cost most; of days the newest"
    )

    @model_validator(mode="after")
    def _some_time(self) -> Self:
        if self.begin is not None and self.end is not None and self.begin >= self.end:
            raise ValueError("from: must be before `to`")
        return self

    def span(self, now: float) -> tuple[float, float]:
        """From when, and until when; seconds since the epoch.

        Raises:
            Problem: 422 ``invalid_request``: that is no time, or too long.
        """
        end = now if self.end is None else self.end
        begin = max(0.0, end - USUAL_S) if self.begin is None else self.begin
        if begin > end:
            raise invalid_at(["query", "from"], "lies in the future")
        if end - begin > LONGEST_S:
            raise invalid_at(["query", "from"], "lies more than 366 days before `to`: ask for a part of that time")
        return begin, end


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class ModelCall(_Answer):
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


class ToolUsage(_Answer):
    """The calls of one tool that have ended."""

    tool: str
    calls: Count
    failures: int = Field(description="how many of them were told to the model as errors; denied ones too")
    elapsed_ms: float = Field(description="how long they ran, together")


class TurnUsage(_Answer):
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


class UsageReport(_Answer):
    """Sums by group, those that cost most first, of days the newest; ``total`` is of all groups, shown or not."""

    begin: str = Field(serialization_alias="from")
    end: str = Field(serialization_alias="to")
    by: str
    data: list[UsageGroup]
    groups: int = Field(description="how many there are, shown or not")
    total: UsageSum
