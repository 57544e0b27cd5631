"""The API's answers about turns, and the base class of all answers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from harness_worker.wire import StopReason, Strategy, TurnStatus


class Answer(BaseModel):
    """An answer, or a part of one."""

    model_config = ConfigDict(frozen=True)


class Usage(Answer):
    """What a turn and the turns it asked for have used so far; ``input_tokens`` does not include cached tokens.

    Steps and tool calls are the turn's own.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    dollars: float = 0.0
    steps: int = 0
    tool_calls: int = 0


class Budget(Answer):
    """What a turn may use, in US dollars and seconds; ``null`` means no limit."""

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
        default=None, description="the turn that a call of another agent started, once the call was sent"
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
    """A call that waits for a person in a turn below this one, at any depth; answer it at that turn, ``turn_id``."""

    turn_id: str


class Citation(Answer):
    """A source that an answer cites: ``local``, a document by its passage's id; ``web``, a page by its address."""

    kind: Literal["local", "web"]
    id: str
    title: str
    source: str
    quote: str | None = None


class ForkedFrom(Answer):
    """What a turn was forked from: it has that turn's steps before ``step``, and its own from ``step`` on."""

    turn_id: str
    step: int


class Parent(Answer):
    """The call that started a turn, and the turn that made the call."""

    turn_id: str
    call_id: str


class TurnSummary(Answer):
    """A turn without its calls, as lists show it. Times are RFC 3339 UTC."""

    id: str
    status: TurnStatus
    stop_reason: StopReason | None
    agent: str
    session_id: str
    parent: Parent | None = Field(default=None, description="the call that started it, if an agent asked for it")
    input: str
    output_text: str
    citations: list[Citation]
    usage: Usage
    budget: Budget
    required_actions: list[RequiredAction]
    subagent_actions: list[SubagentAction] = Field(
        default_factory=list[SubagentAction],
        description="calls of turns below it that wait for a person; answer each at its `turn_id`",
    )
    error: TurnError | None
    decision: Strategy | None = Field(description="how an ended turn came by its answer")
    metadata: dict[str, str]
    forked_from: ForkedFrom | None = None
    batch_id: str | None = Field(default=None, description="the batch that it was posted in, if any")
    custom_id: str | None = Field(default=None, description="the client's name for it in that batch")
    created_at: str
    started_at: str | None
    finished_at: str | None


class Turn(TurnSummary):
    """The work on one user message, up to its answer."""

    calls: list[Call]


class Message(Answer):
    """One message of the history, in the format of Anthropic's API."""

    role: str
    content: Any


class Score(Answer):
    """A judge's score of an ended turn, from 0, the worst, to 1, the best. Times are RFC 3339 UTC."""

    judge: str
    score: float | None
    reason: str
    error: str | None = Field(description="why there is no score, after the last attempt")
    at: str | None = Field(description="when the judge finished; null until then")


class ScoreList(Answer):
    """The scores of a turn's judges, ordered by judge."""

    data: list[Score]


class TurnWithParts(Turn):
    """A turn with the parts that ``include`` names; the members for other parts are absent."""

    context: list[str] = Field(
        default_factory=list[str], description="with `messages`: what the model was sent before the user's message"
    )
    messages: list[Message] = Field(default_factory=list[Message], description="with `messages`: its history")
    scores: list[Score] = Field(default_factory=list[Score], description="with `scores`: the scores of its judges")

    @model_serializer(mode="wrap")
    def _as_asked(self, whole: SerializerFunctionWrapHandler):  # noqa: ANN202 - OpenAPI would show it, not the members
        left_out = {"context", "messages", "scores"} - self.model_fields_set
        return {name: value for name, value in whole(self).items() if name not in left_out}


class TurnPage(Answer):
    """Turns, newest first; pass ``next`` as ``after`` to get the next page."""

    data: list[TurnSummary]
    next: str | None


class Event(Answer):
    """A durable event; a turn's events have ``seq`` 1, 2, 3 … without gaps."""

    seq: int
    type: str
    turn_id: str
    at: str
    data: dict[str, Any]


class EventPage(Answer):
    """Events in order; pass ``next`` as ``after`` to get the next page."""

    data: list[Event]
    next: int | None
