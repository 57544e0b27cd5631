"""Answers to OpenAI's clients."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from api_gateway.turns.answers import Answer

ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]
FinishReason: TypeAlias = Literal["stop", "length", "content_filter"]
ResponseStatus: TypeAlias = Literal["queued", "in_progress", "completed", "failed", "cancelled", "incomplete"]


class ModelCard(Answer):
    """An agent as a model; ``created`` is when a worker last published it, in seconds since the epoch."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "agent-harness"


class ModelList(Answer):
    """Every agent, ordered by name."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class OutputText(Answer):
    """The text of a message."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[str] = Field(default=[])
    logprobs: list[str] = Field(default=[])


class OutputMessage(Answer):
    """What the agent says."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    status: ItemStatus
    content: list[OutputText]


class OutputCall(Answer):
    """A tool call that the harness itself has run; ``call_id`` is ``"{step}.{position}"``."""

    id: str
    type: Literal["function_call"] = "function_call"
    status: ItemStatus = "completed"
    call_id: str
    name: str
    arguments: str = Field(description="JSON")


class OutputCallOutput(Answer):
    """What the model read as the result of a call."""

    id: str
    type: Literal["function_call_output"] = "function_call_output"
    status: ItemStatus = "completed"
    call_id: str
    output: str


OutputItem: TypeAlias = OutputCall | OutputCallOutput | OutputMessage


class ResponseUsage(Answer):
    """What all model calls of the turn used."""

    input_tokens: int
    input_tokens_details: dict[str, int] = Field(description="those that are `cached_tokens` or `cache_write_tokens`")
    output_tokens: int
    output_tokens_details: dict[str, int] = Field(default={"reasoning_tokens": 0}, description="not counted separately")
    total_tokens: int


class ResponseError(Answer):
    """Why a turn failed; the message begins with the turn's own code."""

    code: Literal["server_error"] = "server_error"
    message: str


class PlainText(Answer):
    """What agents answer in."""

    type: Literal["text"] = "text"


class TextFormat(Answer):
    """The format of the answer's text."""

    format: PlainText = Field(default=PlainText())


class AgentResponse(Answer):
    """A turn as a response. Its metadata have ``requires_action`` while it waits for a person's approval."""

    id: str = Field(description="the turn's id")
    object: Literal["response"] = "response"
    created_at: int = Field(description="seconds since the epoch")
    completed_at: int | None
    status: ResponseStatus
    model: str
    output: list[OutputItem]
    error: ResponseError | None
    incomplete_details: dict[str, str] | None = Field(description="`reason`: OpenAI's term, or else the `stop_reason`")
    usage: ResponseUsage
    conversation: dict[str, str] = Field(description="`id`: the session's id")
    metadata: dict[str, str]
    tools: list[str] = Field(default=[], description="the client's tools, so always empty")
    tool_choice: Literal["auto"] = "auto"
    parallel_tool_calls: bool = Field(description="whether the agent's calls may run at once")
    max_tool_calls: int = Field(description="that of the turn's budget")
    previous_response_id: str | None = Field(description="the turn before it in its session, if there is one")
    instructions: str | None = Field(description="the text that replaces the agent's system text, if one does")
    text: TextFormat = Field(default=TextFormat())


class CompletionUsage(Answer):
    """What all model calls of the turn used."""

    prompt_tokens: int
    prompt_tokens_details: dict[str, int] = Field(description="those that are `cached_tokens` or `cache_write_tokens`")
    completion_tokens: int
    total_tokens: int


class CompletionMessage(Answer):
    """The answer."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class Choice(Answer):
    """The only answer there is."""

    index: int = 0
    message: CompletionMessage
    finish_reason: FinishReason
    logprobs: None = None


class Completion(Answer):
    """A turn that has an answer, as a chat completion."""

    id: str = Field(description="the turn's id")
    object: Literal["chat.completion"] = "chat.completion"
    created: int = Field(description="seconds since the epoch")
    model: str
    choices: list[Choice]
    usage: CompletionUsage
