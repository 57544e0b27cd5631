"""What clients send to post, fork or answer a turn."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from api_gateway.requests.fields import Amount, ClosedBody, Count, Metadata, ShortText, StorableObject, Text
from api_gateway.requests.webhook_urls import MAX_URL_CHARS, webhook_url
from harness_worker.wire import Priority

Multitask: TypeAlias = Literal["reject", "enqueue", "interrupt"]


class BudgetRequest(ClosedBody):
    """What the turn may use; a limit above the agent's cap is lowered to the cap."""

    max_steps: Count | None = None
    max_tool_calls: Count | None = None
    max_reflections: Count | None = None
    max_tokens: Count | None = None
    max_dollars: Amount | None = None
    timeout_s: Amount | None = None


class _TurnOptions(ClosedBody):
    """Options of any turn that is asked for."""

    budget: BudgetRequest | None = None
    metadata: Metadata | None = None
    priority: Literal["interactive", "batch"] | None = None
    webhook: (
        Annotated[
            Text,
            AfterValidator(webhook_url),
            Field(max_length=MAX_URL_CHARS, description="an http or https URL to call when the turn ends or parks"),
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
        """The turn's priority; interactive unless the request says otherwise."""
        return Priority(self.priority or Priority.INTERACTIVE)


class ForkRequest(_TurnOptions):
    """From which step of a turn to go on, and what to change; options that are left out are those of the turn.

    Only the priority is not: it is interactive unless given.
    """

    from_step: Annotated[Count, Field(description="the first step that is the fork's own; 0 starts from the beginning")]
    agent: Text | None = None
    input: Annotated[Text, Field(description="another user message; only with `from_step` 0")] | None = None

    @model_validator(mode="after")
    def _input_begins(self) -> Self:
        if self.input is not None and self.from_step > 0:
            raise ValueError("give input with from_step 0 only: the steps before it answer the original input")
        return self


class InputRequest(ClosedBody):
    """The answer that a parked turn waits for: a decision on a call, or a message."""

    call_id: Text | None = None
    decision: Literal["approve", "deny"] | None = None
    reason: Text | None = None
    arguments: StorableObject | None = None
    message: Annotated[Text, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.decision is None) == (self.message is None):
            raise ValueError("give exactly one of decision and message")
        if self.decision is not None and self.call_id is None:
            raise ValueError("a decision needs the call_id it is about")
        if self.decision == "deny" and self.arguments is not None:
            raise ValueError("arguments belong to an approval; a denied call is not run")
        if self.message is not None and (self.call_id, self.reason, self.arguments) != (None, None, None):
            raise ValueError("call_id, reason and arguments belong to a decision, not to a message")
        return self
