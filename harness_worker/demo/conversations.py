"""The customers' questions in the demonstration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One question, and the recording that answers it.

    Args:
        script: The recording's name in ``shop_script.jsonl``.
        question: What the customer writes.
    """

    script: str
    question: str


CONVERSATIONS: Final = (
    Conversation(
        script="address",
        question="Where is my order 1042, and can I still change the address? I'm moving to 12 Harbour Street, "
        "5003 Bergen.",
    ),
    Conversation(
        script="broken",
        question="The blue kettle from order 1017 arrived broken. Can I have another one, or my money back?",
    ),
    Conversation(
        script="gift",
        question="Please gift-wrap order 1055, use my voucher SPRING24, and tell me what I'll pay.",
    ),
)
