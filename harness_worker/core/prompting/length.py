"""How long a prompt is, estimated from its characters and the provider's token count of an earlier prompt."""

from __future__ import annotations

from dataclasses import replace

from harness_worker.core.canonical import canonical
from harness_worker.core.prompting.prompt import Prompt
from harness_worker.core.records import TurnPreparation


def measured(prompt: Prompt, tokens: int) -> TurnPreparation:
    """The prompt's preparation, with the prompt's length in tokens, as counted, and in characters."""
    return replace(prompt.preparation, prompt_tokens=tokens, prompt_chars=_chars_of(prompt))


def tokens_of(prompt: Prompt) -> int:
    """About how many tokens the prompt has, by the last counted prompt's tokens a character; 0 if none was counted."""
    known = prompt.preparation
    if not known.prompt_tokens or not known.prompt_chars:  # an older worker stored no characters
        return known.prompt_tokens
    return round(known.prompt_tokens * _chars_of(prompt) / known.prompt_chars)


def _chars_of(prompt: Prompt) -> int:
    tools = [[tool.name, tool.description, tool.schema] for tool in prompt.tools]
    return len(canonical([prompt.system, tools, [message.content for message in prompt.messages]]))
