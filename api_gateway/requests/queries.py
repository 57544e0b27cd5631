"""Query parameters: pages of lists, parts of turns, events and which turns; others are refused."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from api_gateway.requests.cursors import Cursor, parse_cursor
from api_gateway.requests.fields import METADATA_PREFIX, Number, Text
from harness_worker.validation import MAX_METADATA_PAIRS
from harness_worker.wire import TurnStatus


class ClosedQuery(BaseModel):
    """Query parameters; others than the model's are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoQuery(ClosedQuery):
    """The query of an endpoint that has no parameters."""


def _cursor(text: str) -> str:
    parse_cursor(text)
    return text


class PageQuery(ClosedQuery):
    """Which page of a list."""

    after: Annotated[str, AfterValidator(_cursor)] | None = Field(
        default=None, description="`next` of the previous page"
    )
    limit: Annotated[int, Field(ge=1, le=200), Number] = 50

    @property
    def cursor(self) -> Cursor | None:
        """The last row of the previous page; ``None`` for the first page."""
        return None if self.after is None else parse_cursor(self.after)


class TurnQuery(ClosedQuery):
    """What to add to a turn."""

    include: Literal["messages", "scores", "messages,scores", "scores,messages"] | None = Field(
        default=None, description="`messages` adds the history, `scores` what judges say; join both with a comma"
    )

    @property
    def parts(self) -> frozenset[str]:
        """The names of the parts to add."""
        return frozenset(self.include.split(",")) if self.include else frozenset()


class EventsQuery(ClosedQuery):
    """Which events."""

    after: Annotated[int, Field(ge=0, description="the `seq` before the first one wanted"), Number] = 0
    limit: Annotated[int, Field(ge=1, le=1_000), Number] = 100


def _metadata_name(name: str) -> str:
    if not name.startswith(METADATA_PREFIX):
        raise ValueError("unknown query parameter")
    _without_null(name)
    return name


def _without_null(given: object) -> object:
    if not isinstance(given, str) or "\0" in given:
        raise ValueError("must be given once, without U+0000")
    return given


MetadataName = Annotated[str, AfterValidator(_metadata_name)]
MetadataGiven = Annotated[str, BeforeValidator(_without_null)]


class Narrowing(BaseModel):
    """Which turns. Further parameters ``metadata.KEY=VALUE`` select turns whose metadata have that text."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[MetadataName, MetadataGiven] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    status: TurnStatus | None = None
    session_id: Text | None = None
    agent: Text | None = None
    batch_id: Text | None = None
    parent_id: Text | None = Field(default=None, description="only turns that calls of this turn started")

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata asked for, by key."""
        return {name.removeprefix(METADATA_PREFIX): value for name, value in self.__pydantic_extra__.items()}

    @model_validator(mode="after")
    def _few_pairs(self) -> Self:
        if len(self.metadata) > MAX_METADATA_PAIRS:  # the database would have to look for each of them
            raise ValueError(f"give at most {MAX_METADATA_PAIRS} metadata.KEY parameters: no turn has more pairs")
        return self


class TurnsQuery(PageQuery, Narrowing):
    """Which turns, a page at a time, narrowed as :class:`Narrowing` says."""
