"""Requests of OpenAI's clients. Each parameter is used, or accepted without effect if it only advises, or refused."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from api_gateway.requests.fields import ClosedBody, Count, Metadata, ShortText, Text

TEXT_PARTS: Final = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""The parts that are text, each with the member that has it."""
REASONING: Final = "reasoning.encrypted_content"
"""A part of items that agents do not have, which some clients ask for in every request."""


def _joined(content: object) -> object:
    """A message's parts as one text; anything but text is refused."""
    if not isinstance(content, list):
        return content
    return "\n".join(_text_of(part) for part in cast("list[Any]", content))


def _text_of(part: Any) -> str:  # noqa: ANN401 - any JSON
    given = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
    text = given.get(TEXT_PARTS.get(str(given.get("type")), ""))
    if isinstance(text, str):
        return text
    raise ValueError(f"agents take only text: each part must be one of {', '.join(TEXT_PARTS)}, with a text")


def _only(harmless: tuple[object, ...], why: str) -> BeforeValidator:
    """Refuse a parameter that would have to change what the client gets; only ``harmless`` values are accepted."""

    def check(value: object) -> None:
        if value is not None and value not in harmless:
            raise ValueError(why)

    return BeforeValidator(check, json_schema_input_type=Any)


_BOUNDS: Final = "an agent's own budget limits what it says: leave it out"
_TOOLS: Final = "an agent has its own tools and runs them itself: leave it out"
_LOGPROBS: Final = "agents report no probabilities: leave it out"
_MODERATION: Final = "nothing is moderated here: leave it out"

Content: TypeAlias = Annotated[Text, BeforeValidator(_joined, json_schema_input_type=str | list[dict[str, Any]])]
Advice: TypeAlias = Annotated[
    None, BeforeValidator(lambda _: None, json_schema_input_type=Any), Field(description="accepted, without effect")
]
OwnTools: TypeAlias = Annotated[None, _only(([],), _TOOLS), Field(description=_TOOLS)]
OwnChoice: TypeAlias = Annotated[None, _only(("auto",), _TOOLS), Field(description=f"only `auto`: {_TOOLS}")]
OwnBounds: TypeAlias = Annotated[None, _only((), _BOUNDS), Field(description=_BOUNDS)]
NoLogprobs: TypeAlias = Annotated[None, _only((0, False), _LOGPROBS), Field(description=_LOGPROBS)]
NoModeration: TypeAlias = Annotated[None, _only((), _MODERATION), Field(description=_MODERATION)]


class _Item(BaseModel):
    """Part of a conversation. Clients hand back items as they got them, so unknown members are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class InputMessage(_Item):
    """A message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    refusal: Text | None = None
    name: Text | None = None
    tool_calls: Annotated[list[dict[str, Any]], Field(fail_fast=True)] | None = None
    tool_call_id: Text | None = None


class InputCall(_Item):
    """A call that an agent made, handed back by the client."""

    type: Literal["function_call"]
    call_id: Text
    name: Text
    arguments: Text


class InputCallOutput(_Item):
    """The output of a call, handed back by the client."""

    type: Literal["function_call_output"]
    call_id: Text
    output: Content


class InputReasoning(_Item):
    """What another model thought before, handed back by the client: not part of what was said."""

    type: Literal["reasoning"]


def _kind(item: Any) -> str | None:  # noqa: ANN401 - any JSON
    return item.get("type") or "message" if isinstance(item, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _id_of(conversation: Any) -> object:  # noqa: ANN401 - any JSON
    return conversation.get("id") if isinstance(conversation, dict) else conversation  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


SessionId: TypeAlias = Annotated[ShortText, BeforeValidator(_id_of, json_schema_input_type=str | dict[str, str])]


def _as_items(given: object) -> object:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


Item: TypeAlias = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[InputCall, Tag("function_call")]
    | Annotated[InputCallOutput, Tag("function_call_output")]
    | Annotated[InputReasoning, Tag("reasoning")],
    Discriminator(
        _kind,
        custom_error_type="item",
        custom_error_message="must be a message, a function_call, a function_call_output or a reasoning",
    ),
]


class _Request(ClosedBody):
    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:  # noqa: ANN401 - any JSON
        return {name: value for name, value in given.items() if value is not None} if isinstance(given, dict) else given  # pyright: ignore[reportUnknownVariableType]

    model: Text = Field(description="the agent")
    metadata: Metadata | None = None
    stream: bool | None = None
    parallel_tool_calls: bool | None = Field(default=None, description="false: the agent's calls run one at a time")
    tools: OwnTools = None
    tool_choice: OwnChoice = None
    top_logprobs: NoLogprobs = None
    moderation: NoModeration = None
    temperature: Advice = None
    top_p: Advice = None
    service_tier: Advice = None
    user: Advice = None
    safety_identifier: Advice = None
    prompt_cache_key: Advice = None
    prompt_cache_options: Advice = None
    prompt_cache_retention: Advice = None
    store: Advice = None


class TextOptions(_Item):
    """The wanted format of the answer's text."""

    format: Annotated[None, _only(({"type": "text"},), "agents answer in plain text: leave it out")] = None


class ResponseRequest(_Request):
    """``POST /v1/responses``. ``null`` counts as absent."""

    input: Annotated[
        list[Item],
        Field(min_length=1, fail_fast=True),
        BeforeValidator(_as_items, json_schema_input_type=str | list[Item]),
    ] = Field(description="the last item is the user's message to the agent; those before are the conversation so far")
    instructions: Text | None = Field(default=None, description="replaces the agent's system text")
    previous_response_id: Text | None = Field(default=None, description="the last response of the conversation")
    conversation: SessionId | None = Field(
        default=None, description="the session to continue, instead of `previous_response_id`"
    )
    background: bool | None = Field(default=None, description="answer at once, without waiting for the turn")
    max_tool_calls: Count | None = Field(default=None, description="a limit above the agent's is lowered to it")
    max_output_tokens: OwnBounds = None
    text: TextOptions | None = None
    prompt: Annotated[None, _only((), "an agent has its own prompt: leave it out, or give instructions")] = None
    include: Annotated[None, _only(([], [REASONING]), "there is nothing else to include: leave it out")] = None
    reasoning: Advice = None
    truncation: Advice = None
    context_management: Advice = None
    background_options: Advice = None
    access_programs: Advice = None
    image: Advice = None
    stream_options: Advice = None

    @model_validator(mode="after")
    def _one_past(self) -> ResponseRequest:
        if self.previous_response_id is not None and self.conversation is not None:
            raise ValueError("give previous_response_id or conversation, not both")
        return self


class StreamOptions(_Item):
    """What a completion's stream contains in addition."""

    include_usage: bool | None = None


class ChatRequest(_Request):
    """``POST /v1/chat/completions``. ``null`` counts as absent."""

    messages: Annotated[list[InputMessage], Field(min_length=1, fail_fast=True)] = Field(
        description="the last is the user's message to the agent; those before are the conversation so far"
    )
    stream_options: StreamOptions | None = None
    n: Annotated[None, _only((1,), "an agent gives one answer: leave it out, or give 1")] = None
    response_format: Annotated[None, _only(({"type": "text"},), "agents answer in plain text: leave it out")] = None
    modalities: Annotated[None, _only((["text"],), "agents answer in text: leave it out")] = None
    audio: Annotated[None, _only((), "agents answer in text: leave it out")] = None
    web_search_options: Annotated[None, _only((), _TOOLS)] = None
    stop: Annotated[None, _only(([],), "an agent cannot be stopped by a text: leave it out")] = None
    logit_bias: Annotated[None, _only(({},), "an agent's words cannot be weighted: leave it out")] = None
    max_tokens: OwnBounds = None
    max_completion_tokens: OwnBounds = None
    functions: OwnTools = None
    function_call: OwnChoice = None
    logprobs: NoLogprobs = None
    frequency_penalty: Advice = None
    presence_penalty: Advice = None
    prediction: Advice = None
    reasoning_effort: Advice = None
    seed: Advice = None
    verbosity: Advice = None
