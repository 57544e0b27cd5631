"""What clients send: bodies and query parameters, checked strictly."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self, TypeAlias, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from api_gateway.closed import FEW_PAIRS, ClosedBody
from api_gateway.cursors import Cursor, parse_cursor
from api_gateway.webhook_urls import MAX_URL_CHARS, webhook_url
from harness_worker.wire import (
    MAX_METADATA_CHARS,
    MAX_METADATA_PAIRS,
    MAX_SESSION_ID_CHARS,
    Priority,
    TurnStatus,
    storable,
)

METADATA_PREFIX: Final = "metadata."
MAX_SEQ: Final = 2**31 - 1
LONGEST_ID: Final = 64


def _storable(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """JSON whose every text any database can hold."""
    if isinstance(value, str):
        storable(value)
    elif isinstance(value, dict):
        for name, member in cast("dict[str, Any]", value).items():
            storable(name)
            _storable(member)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            _storable(item)
    return value  # pyright: ignore[reportUnknownVariableType]


def is_id(text: str, longest: int = LONGEST_ID) -> bool:
    """Whether a database could hold the text of a path as an id; one that no database can store is not found."""
    return "\0" not in text and len(text) <= longest


def number_in(text: str) -> int:
    """The number in a query or a header, of ASCII digits alone; one too long for any row is as good as the largest.

    Raises:
        ValueError: It is none.
    """
    if not (text.isascii() and text.isdigit()):
        raise ValueError("must be a non-negative integer")
    return min(int(text), MAX_SEQ) if len(text) <= 20 else MAX_SEQ


def _cursor(text: str) -> str:
    parse_cursor(text)
    return text


Multitask: TypeAlias = Literal["reject", "enqueue", "interrupt"]
Text = Annotated[str, AfterValidator(storable)]
ShortText = Annotated[Text, Field(min_length=1, max_length=MAX_SESSION_ID_CHARS)]
MetadataText = Annotated[Text, Field(max_length=MAX_METADATA_CHARS)]
Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Number = BeforeValidator(lambda given: number_in(given) if isinstance(given, str) else given)
Metadata = Annotated[dict[MetadataText, MetadataText], Field(max_length=MAX_METADATA_PAIRS), FEW_PAIRS]


class ClosedQuery(BaseModel):
    """These query parameters alone."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PageQuery(ClosedQuery):
    """Which page of a list."""

    after: Annotated[str, AfterValidator(_cursor)] | None = Field(default=None, description="`next` of the page before")
    limit: Annotated[int, Field(ge=1, le=200), Number] = 50

    @property
    def cursor(self) -> Cursor | None:
        """Where the page begins."""
        return None if self.after is None else parse_cursor(self.after)


class BudgetRequest(ClosedBody):
    """What the turn may use; each limit above the agent's cap becomes the cap."""

    max_steps: Count | None = None
    max_tool_calls: Count | None = None
    max_reflections: Count | None = None
    max_tokens: Count | None = None
    max_dollars: Amount | None = None
    timeout_s: Amount | None = None


class _TurnOptions(ClosedBody):
    """What may be said of any turn that is asked for."""

    budget: BudgetRequest | None = None
    metadata: Metadata | None = None
    priority: Literal["interactive", "batch"] | None = None
    webhook: (
        Annotated[
            Text,
            AfterValidator(webhook_url),
            Field(max_length=MAX_URL_CHARS, description="an http or https URL to tell when the turn ends or parks"),
        ]
        | None
    ) = None
    system_prompt_override: Text | None = None
    parallel: bool | None = None


class TurnRequest(_TurnOptions):
    """One user message for an agent. ``null`` counts as absent."""

    agent: Text
    input: Text
    session_id: ShortText | None = None
    multitask: Multitask | None = None
    skill_context: Text | None = None

    @property
    def queue_priority(self) -> Priority:
        """Who waits for it; interactive unless said."""
        return Priority(self.priority or Priority.INTERACTIVE)


class ForkRequest(_TurnOptions):
    """From which step of a turn to go on, and what shall be different; what is not said is the turn's.

    The priority is not: somebody waits for it, unless said.
    """

    from_step: Annotated[Count, Field(description="the first step that is not the turn's; 0 begins anew")]
    agent: Text | None = None
    input: Annotated[Text, Field(description="other words of the user; with `from_step` 0 only")] | None = None

    @model_validator(mode="after")
    def _input_begins(self) -> Self:
        if self.input is not None and self.from_step > 0:
            raise ValueError("give input with from_step 0 only: the steps before answer what the user said then")
        return self


class InputRequest(ClosedBody):
    """What a parked turn waits for: a decision on a call, or a message."""

    call_id: Text | None = None
    decision: Literal["approve", "deny"] | None = None
    reason: Text | None = None
    arguments: Annotated[dict[str, Any], AfterValidator(_storable)] | None = None
    message: Annotated[Text, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.decision is None) == (self.message is None):
            raise ValueError("give exactly one of decision and message")
        if self.decision is not None and self.call_id is None:
            raise ValueError("a decision needs the call_id it is about")
        if self.decision == "deny" and self.arguments is not None:
            raise ValueError("arguments belong to an approval; a call that is denied has none")
        if self.message is not None and (self.call_id, self.reason, self.arguments) != (None, None, None):
            raise ValueError("call_id, reason and arguments belong to a decision, not to a message")
        return self


class NoQuery(ClosedQuery):
    """An endpoint without query parameters."""


class TurnQuery(ClosedQuery):
    """What to add to a turn."""

    include: (
        Annotated[
            str,
            Field(
                pattern="^(messages|scores|messages,scores|scores,messages)$",
                description="`messages` adds the history, `scores` what judges say; both are joined by a comma",
            ),
        ]
        | None
    ) = None

    @property
    def parts(self) -> frozenset[str]:
        """What to add, by name."""
        return frozenset(self.include.split(",")) if self.include else frozenset()


class EventsQuery(ClosedQuery):
    """Which events."""

    after: Annotated[int, Field(ge=0, description="the seq before the first one wanted"), Number] = 0
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
    """Which turns. Further parameters ``metadata.KEY=VALUE`` ask for turns whose metadata hold that text."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[MetadataName, MetadataGiven] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    status: TurnStatus | None = None
    session_id: Text | None = None
    agent: Text | None = None
    batch_id: Text | None = None
    parent_id: Text | None = Field(default=None, description="only turns that are calls of this one")

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata asked for, by key."""
        return {name.removeprefix(METADATA_PREFIX): value for name, value in self.__pydantic_extra__.items()}

    @model_validator(mode="after")
    def _few_pairs(self) -> Self:
        if len(self.metadata) > MAX_METADATA_PAIRS:  # of which a database would have to look for each
            raise ValueError(f"at most {MAX_METADATA_PAIRS} of metadata.KEY: no turn has more")
        return self


class TurnsQuery(PageQuery, Narrowing):
    """Which turns, a page at a time. What else may be given is as ``Narrowing`` says."""
