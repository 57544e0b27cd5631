"""The agent of the long conversation: it remembers, has documents, thinks, sums up, cites, and is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness_worker import Effect, Registry, Score, ToolError, TurnResult

MODEL: Final = "scripted:scripts.jsonl"
"""In the working directory of each host: turns tell their model's name, and no path may be told."""
ARCHIVE: Final = "archive"
"""The queue of tools that only one host runs."""

_ORDERS: Final = {"A-17": "on its way", "A-18": "delivered", "A-19": "packed"}

registry = Registry()


@registry.tool(effect=Effect.READ_ONLY)
def find_order(number: str) -> dict[str, str]:
    """One order."""
    if number not in _ORDERS:
        raise ToolError(f"there is no order {number}")
    return {"number": number, "state": _ORDERS[number]}


@registry.tool(effect=Effect.READ_ONLY, kind="web")
def search(query: str) -> list[dict[str, str]]:
    """Search the web."""
    return [{"url": "https://example.org/law", "title": "The law", "snippet": "At least 14 days."}]


@registry.tool(effect=Effect.READ_ONLY, queue=ARCHIVE)
def statement(year: int) -> str:
    """Every booking of a year: longer than what goes into the context."""
    return "".join(f"{year}, booking {number:04}: a lamp\n" for number in range(500))


@registry.tool(effect=Effect.READ_ONLY)
def inventory() -> str:
    """Everything in stock: longer than what goes into the context."""
    return "".join(f"shelf {number:04}: a lämp\n" for number in range(800))


@registry.tool(effect=Effect.LOCAL_WRITE)
def note(text: str) -> str:
    """Write something down."""
    return f"noted: {text}"


def calls(turn: TurnResult) -> Score:
    """One, less what did not go well."""
    wrong = sum(call.is_error for call in turn.calls)
    return Score(1 - wrong / max(1, len(turn.calls)), f"{wrong} of {len(turn.calls)} calls went wrong")


registry.judge("calls", calls)
registry.judge("relevance", model=MODEL)
registry.agent(
    "desk",
    model=MODEL,
    system="You sit at the desk of a shop.",
    tools=[find_order, search, statement, inventory, note],
    budget={"max_steps": 10, "max_tool_calls": 20, "timeout_s": 300},
    memory=True,
    vault=str(Path(__file__).parent / "vault"),
    think="low",
    compact_at_tokens=1_000,
    judges=["calls", "relevance"],
)
