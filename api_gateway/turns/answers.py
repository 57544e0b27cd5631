"""What the API answers about turns, and what all answers have in common."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from harness_worker.wire import StopReason, Strategy, TurnStatus


class Answer(BaseModel):
    """Part of an answer."""

    model_config = ConfigDict(frozen=True)


class Usage(Answer):
    """What a turn and those that it asked for have used so far; cached tokens are not in ``input_tokens``.

    Steps and tool calls are its own.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    dollars: float = 0.0
    steps: int = 0
    tool_calls: int = 0


class Budget(Answer):
    """What a turn may use; ``null`` is no limit. US dollars, seconds."""

    max_steps: int
    max_tool_calls: int
    max_reflections: int
    max_tokens: int | None
    max_dollars: float
    timeout_s: float


class TurnError(Answer):
    """Why a turn failed."""

    code: str
    message: str


class Call(Answer):
    """One tool call; ``call_id`` is ``"{step}.{position}"``."""

    call_id: str
    tool_use_id: str
    tool: str
    effect: str | None
    step: int
    wave: int
    position: int
    arguments: Any
    outcome: str | None = Field(description="the outcome's class name; null until the call has ended")
    content: str = Field(description="what the model reads")
    is_error: bool
    attempt: int
    worker: str | None
    child_turn_id: str | None = Field(
        default=None, description="the turn that a call of another agent is, once it was sent"
    )
    started_at: str | None
    finished_at: str | None


class RequiredAction(Answer):
    """A call that waits for a person."""

    call_id: str
    tool: str
    arguments: Any
    expires_at: str


class SubagentAction(RequiredAction):
    """The same of a turn that was asked for, at any depth: the answer goes to that turn, ``turn_id``."""

    turn_id: str


class Citation(Answer):
    """What an answer cites: ``local``, a document by its passage's id; ``web``, a page by its address."""

    kind: Literal["local", "web"]
    id: str
    title: str
    source: str
    quote: str | None = None


class ForkedFrom(Answer):
    """What a turn was forked from: it has that turn's steps before ``step``, and its own from there on."""

    turn_id: str
    step: int


class Parent(Answer):
    """Which call of which turn a turn is."""

    turn_id: str
    call_id: str


class TurnSummary(Answer):
    """A turn without its calls, as lists give it. Times are RFC 3339 UTC."""

    id: str
    status: TurnStatus
    stop_reason: StopReason | None
    agent: str
    session_id: str
    parent: Parent | None = Field(default=None, description="the call that it is, if an agent asked for it")
    input: str
    output_text: str
    citations: list[Citation]
    usage: Usage
    budget: Budget
    required_actions: list[RequiredAction]
    subagent_actions: list[SubagentAction] = Field(
        default_factory=list[SubagentAction], description="what turns below it wait for; answer each at its `turn_id`"
    )
    error: TurnError | None
    decision: Strategy | None = Field(description="how an ended turn came by its answer")
    metadata: dict[str, str]
    forked_from: ForkedFrom | None = None
    batch_id: str | None = Field(default=None, description="the batch it was posted with, if it was")
    custom_id: str | None = Field(default=None, description="what its client calls it in that batch")
    created_at: str
    started_at: str | None
    finished_at: str | None


class Turn(TurnSummary):
    """One user message worked to an answer."""

    calls: list[Call]


class Message(Answer):
    """One message of the history, Anthropic-shaped."""

    role: str
    content: Any


class Score(Answer):
    """What a judge says of a turn that is over: from 0, worst, to 1, best. Times are RFC 3339 UTC."""

    judge: str
    score: float | None
    reason: str
    error: str | None = Field(description="why there is no score, after the last attempt")
    at: str | None = Field(description="null until the judge has spoken")


class ScoreList(Answer):
    """What a turn's judges say, by judge."""

    data: list[Score]


class TurnWithParts(Turn):
    """A turn with the parts that ``include`` names; of the others it has no member."""

    context: list[str] = Field(
        default_factory=list[str], description="with `messages`: what the model was sent before the user's words"
    )
    messages: list[Message] = Field(default_factory=list[Message], description="with `messages`: its history")
    scores: list[Score] = Field(default_factory=list[Score], description="with `scores`: what its judges say")

    @model_serializer(mode="wrap")
    def _as_asked(self, whole: SerializerFunctionWrapHandler):  # noqa: ANN202 - OpenAPI would show it, not the members
        left_out = {"context", "messages", "scores"} - self.model_fields_set
        return {name: value for name, value in whole(self).items() if name not in left_out}


class TurnPage(Answer):
    """Turns, newest first; pass ``next`` as ``after``."""

    data: list[TurnSummary]
    next: str | None


class Event(Answer):
    """A durable event; ``seq`` is 1, 2, 3 … without gaps."""

    seq: int
    type: str
    turn_id: str
    at: str
    data: dict[str, Any]


class EventPage(Answer):
    """Events in order; pass ``next`` as ``after``."""

    data: list[Event]
    next: int | None
