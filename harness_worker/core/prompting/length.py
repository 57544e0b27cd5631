"""How long a prompt is: what the provider counted of an earlier one, and by its characters what this one will have."""

from __future__ import annotations

from dataclasses import replace

from harness_worker.core.canonical import canonical
from harness_worker.core.prompting.prompt import Prompt
from harness_worker.core.records import TurnPreparation


def measured(prompt: Prompt, tokens: int) -> TurnPreparation:
    """What is kept of a prompt that was sent: so many tokens for so many characters."""
    return replace(prompt.preparation, prompt_tokens=tokens, prompt_chars=_chars_of(prompt))


def tokens_of(prompt: Prompt) -> int:
    """About how many tokens the prompt has: as many a character as the last one that was counted; 0: none ever was."""
    known = prompt.preparation
    if not known.prompt_tokens or not known.prompt_chars:  # an older worker kept no characters
        return known.prompt_tokens
    return round(known.prompt_tokens * _chars_of(prompt) / known.prompt_chars)


def _chars_of(prompt: Prompt) -> int:
    tools = [[tool.name, tool.description, tool.schema] for tool in prompt.tools]
    return len(canonical([prompt.system, tools, [message.content for message in prompt.messages]]))
