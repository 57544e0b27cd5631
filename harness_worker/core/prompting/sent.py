"""How the journal's messages are sent: from the last summary on, with reflections after the results they are about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final, TypeAlias, cast

from harness_worker.core.records import Message, TurnPreparation
from harness_worker.core.text import cut_text

Blocks: TypeAlias = list[dict[str, Any]]
TurnMessages: TypeAlias = tuple[TurnPreparation | None, tuple[Message, ...]]
"""A turn's preparation, if known, and its messages."""

WORDLESS: Final = "(no text)"
"""The stand-in for a message that would be empty, which no provider accepts."""

UNPREPARED: Final = TurnPreparation(context=(), prefix_hash="")
"""The preparation of a turn that was never sent."""

_THINKING: Final = frozenset({"thinking", "redacted_thinking"})


def text_block(text: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": text}


def tagged(name: str, text: str) -> str:
    """A text enclosed in tags of that name."""
    return f"<{name}>\n{text}\n</{name}>"


def blocks_of(message: Message) -> Blocks:
    """A message's content as blocks."""
    content: object = message.content
    return [text_block(content)] if isinstance(content, str) else cast("Blocks", content)


def with_text_behind(message: Message, text: str) -> Message:
    """The message with a text block appended."""
    return replace(message, content=[*blocks_of(message), text_block(text)])


def with_short_results(message: Message, most_chars: int) -> Message:
    """The message with long tool results cut to their beginnings; each cut result says how long it was."""
    blocks = blocks_of(message)
    short = [_short(block, most_chars) for block in blocks]
    return message if short == blocks else replace(message, content=short)


def is_wordless(message: Message) -> bool:
    """Whether it contains no words of the model, or only thinking."""
    return message.role == "assistant" and not _without_last_thoughts(blocks_of(message))


def ending_in_words(message: Message) -> Message:
    """The model's message as a provider accepts it back: without blank text and without thinking at its end."""
    if message.role != "assistant":
        return message
    blocks = blocks_of(message)
    said = _without_last_thoughts([block for block in blocks if not _is_blank(block)])
    return message if said and said == blocks else replace(message, content=said or [text_block(WORDLESS)])


def without_open_searches(messages: Sequence[Message]) -> tuple[Message, ...]:
    """A turn's messages without calls of the provider's own tools that got no result.

    It refuses them once other messages follow. They stay open if the turn ends in a pause, or a reply is cut short.
    """
    ended = {block.get("tool_use_id") for message in messages for block in blocks_of(message)}
    return tuple(_without_open_searches(message, ended) for message in messages)


def as_sent(messages: Sequence[Message], preparation: TurnPreparation) -> tuple[Message, ...]:
    """A turn's own messages as they are sent."""
    spoken = tuple(map(ending_in_words, messages))
    return _noted(_with_context(spoken, preparation.context), preparation.notes)


def since_summary(turns: Sequence[TurnMessages]) -> tuple[Message, ...]:
    """The messages of a session's turns since the last summary, with the summary before them; all if there is none."""
    for at, (preparation, messages) in reversed(tuple(enumerate(turns))):
        if preparation is not None and preparation.summary is not None:
            later = (message for _, following in turns[at + 1 :] for message in following)
            return _under_summary((*_kept(messages, preparation.compacted_at - 1), *later), preparation.summary)
    return tuple(message for _, messages in turns for message in messages)


def bound_from(messages: Sequence[Message], first: int) -> tuple[Message, ...]:
    """A turn's messages without the thinking before that step, which no provider accepts under another prefix."""
    return tuple(_without_thinking(each) if step < first else each for each, step in _with_steps(messages))


def _short(block: dict[str, Any], most_chars: int) -> dict[str, Any]:
    content = block.get("content")
    if block.get("type") != "tool_result" or not isinstance(content, str):
        return block
    return {**block, "content": cut_text(content, most_chars)}


def _without_open_searches(message: Message, ended: Set[object]) -> Message:
    blocks = blocks_of(message)
    kept = [block for block in blocks if not _is_of_the_provider(block) or block.get("id") in ended]
    return message if kept == blocks else replace(message, content=kept)


def _is_of_the_provider(block: Mapping[str, Any]) -> bool:
    """Whether it is a call that the provider runs itself, such as ``server_tool_use``; ours are ``tool_use``."""
    return str(block.get("type")).endswith("_tool_use")


def _with_context(messages: Sequence[Message], context: Sequence[str]) -> tuple[Message, ...]:
    """A turn's messages as they are sent: the user's words with their context before them."""
    if not messages:
        return ()
    first, *rest = messages
    words = first.content if isinstance(first.content, str) and first.content.strip() else ""
    blocks = [text_block(text) for text in (*context, words) if text]
    return (replace(first, content=blocks if context else words or WORDLESS), *rest)


def _noted(messages: Sequence[Message], notes: Mapping[str, str]) -> tuple[Message, ...]:
    """A turn's messages with each note placed after the results that it is about.

    Args:
        messages: The turn's own messages.
        notes: Notes by the step that reads them; empty ones are left out.
    """
    if not any(notes.values()):
        return tuple(messages)
    return tuple(_with_note(message, notes.get(str(step))) for message, step in _with_steps(messages))


def _with_note(message: Message, note: str | None) -> Message:
    return with_text_behind(message, tagged("reflection", note)) if note and message.role == "user" else message


def _with_steps(messages: Sequence[Message]) -> Iterator[tuple[Message, int]]:
    """Each message with the number of model messages before it."""
    return zip(messages, accumulate((message.role == "assistant" for message in messages), initial=0), strict=False)


def _kept(messages: Sequence[Message], newest: int) -> Iterator[Message]:
    """The user's words, and everything from step ``newest`` on."""
    for message, step in _with_steps(messages):
        own = step if message.role == "assistant" else step - 1  # results belong to the step before
        if own < 0 or own >= newest:
            yield message


def _without_thinking(message: Message) -> Message:
    blocks = blocks_of(message)
    said = [block for block in blocks if not _is_thought(block)]
    return message if said == blocks else replace(message, content=said or [text_block(WORDLESS)])


def _without_last_thoughts(blocks: Blocks) -> Blocks:
    last = next((at for at in reversed(range(len(blocks))) if not _is_thought(blocks[at])), -1)
    return blocks[: last + 1]


def _is_blank(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "text" and not str(block.get("text", "")).strip()


def _is_thought(block: Mapping[str, Any]) -> bool:
    return block.get("type") in _THINKING


def _under_summary(messages: Sequence[Message], summary: str) -> tuple[Message, ...]:
    first, *rest = messages
    return (replace(first, content=[text_block(tagged("summary", summary)), *blocks_of(first)]), *rest)
