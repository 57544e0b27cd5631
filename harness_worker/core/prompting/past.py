"""How an earlier turn of a session is sent: it ends in the assistant's words, and lacks what a model declined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from harness_worker.core.ending import NO_ANSWER_TEXT
from harness_worker.core.prompting.sent import (
    UNPREPARED,
    TurnMessages,
    as_sent,
    bound_from,
    ending_in_words,
    is_wordless,
    text_block,
    without_open_searches,
)
from harness_worker.core.records import Carried, Message, TurnPreparation
from harness_worker.wire import StopReason, TurnStatus

CLOSINGS: Final[Mapping[TurnStatus, str]] = {
    TurnStatus.CANCELLED: "(This request was cancelled before it was answered.)",
    TurnStatus.FAILED: "(This request failed before it was answered.)",
}
"""Stand-ins for an answer that never came."""

DECLINED_WORDS: Final = "(A request that the model declined.)"
DECLINED: Final = "(The model declined to go on with this request.)"
"""Stand-ins for a request that a model declined, and for its refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTurn:
    """A turn of the session that has ended.

    Args:
        status: How it ended.
        output_text: The answer its user was given.
        preparation: What it was sent with; ``None`` if no model ever answered.
        messages: Its own history.
        stop_reason: Why it ended; ``None`` if it was copied to a fork by a version that did not store the reason.
        carried: What prompts still need of the history up to its summary, if it made one.
    """

    status: TurnStatus
    output_text: str
    preparation: TurnPreparation | None
    messages: tuple[Message, ...]
    stop_reason: StopReason | None = None
    carried: Carried | None = None


def as_read(past: PastTurn) -> TurnMessages:
    """The messages of an earlier turn, ending with the assistant's, because another user message follows.

    A turn that failed before any model answered is left out: a message that a provider rejected would fail every time.
    """
    if past.stop_reason is StopReason.REFUSAL:
        return past.preparation, _without_declined(past.messages)
    said = without_open_searches(past.messages)
    spoken = said[:-1] if said and is_wordless(said[-1]) else said
    if past.status is TurnStatus.FAILED and not any(message.role == "assistant" for message in spoken):
        return past.preparation, ()
    sent = as_sent(spoken, past.preparation or UNPREPARED)
    if sent and sent[-1].role == "assistant":
        return past.preparation, sent
    told = past.output_text if past.output_text.strip() else NO_ANSWER_TEXT
    closing = CLOSINGS.get(past.status, told)
    return past.preparation, (*sent, Message(role="assistant", content=[text_block(closing)]))


def _without_declined(messages: Sequence[Message]) -> tuple[Message, ...]:
    """What is sent of a turn whose last reply was a refusal; sent in full, it would be declined every time.

    Calls and their results stay, because what they did is done; a turn without any is left out. Thinking goes too: it
    is only valid after the user's words, which are replaced.
    """
    roles = [message.role for message in messages]
    refusal = max((at for at, role in enumerate(roles) if role == "assistant"), default=0)
    results = max((at for at, role in enumerate(roles[:refusal]) if role == "user"), default=0)
    if results == 0:
        return ()
    words = replace(messages[0], content=[text_block(DECLINED_WORDS)])
    done = map(ending_in_words, without_open_searches(messages[1 : results + 1]))
    closing = Message(role="assistant", content=[text_block(DECLINED)])
    return bound_from((words, *done, closing), len(messages))
