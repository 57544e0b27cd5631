"""The published agents as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from harness_worker.entrypoints.plain import one_line
from harness_worker.entrypoints.view.columns import GAP, cut, left, widths

_HEAD: Final = ("agent", "model")
_MOST: Final = 32
_LEAST_TOOLS: Final = 12


def catalogue_table(agents: Sequence[Mapping[str, Any]], width: int) -> Iterator[Text]:
    """A line per agent: its name, which is never cut, its model, its tools.

    Args:
        agents: The agents, as from ``GET /v1/agents``.
        width: The width available, in columns.
    """
    rows = [_HEAD, *((one_line(agent["name"]), cut(one_line(agent["model"]), _MOST)) for agent in agents)]
    sizes = widths(rows)
    room = max(width - sum(sizes) - len(GAP) * len(sizes), _LEAST_TOOLS)
    tools = ["tools", *(", ".join(tool["name"] for tool in agent["tools"]) or "none" for agent in agents)]
    for index, (row, names) in enumerate(zip(rows, tools, strict=True)):
        yield Text(GAP.join((*map(left, row, sizes), cut(names, room))), style="" if index else "bold")
