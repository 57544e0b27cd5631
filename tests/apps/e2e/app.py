"""The agents of the end-to-end suite."""

from __future__ import annotations

from pathlib import Path

from tests.apps.e2e import faults, hooks, journal, judges, stoppable
from tests.apps.e2e.work import registry

__all__ = ["faults", "registry", "stoppable"]

_MODEL = f"scripted:{journal.scripts_file(journal.directory())}"
_TOOLS = tuple(name for name in registry.tools if name != "mystery")
_BUDGET = {"max_steps": 20, "max_tool_calls": 50, "timeout_s": 240, "max_tokens": 10_000}


@registry.tool
def unlisted() -> str:
    """Registered, and not on any agent's list."""
    return "never"


registry.agent("worker", model=_MODEL, system="Work.", tools=(*_TOOLS, "mystery"), budget=_BUDGET)
registry.agent("orderly", model=_MODEL, system="One by one.", tools=_TOOLS, budget=_BUDGET, parallel=False)
registry.agent(
    "hooked", model=_MODEL, system="Watched.", tools=_TOOLS, budget=_BUDGET, hooks=(hooks.Raising(), hooks.Noting())
)
registry.agent("held", model=_MODEL, tools=_TOOLS, budget=_BUDGET, hooks=[hooks.Waiting()])
registry.judge("calls", judges.calls)
registry.judge("mortal", judges.mortal, timeout_s=5.0)
registry.judge("relevance", model=_MODEL)
registry.agent("judged", model=_MODEL, tools=_TOOLS, budget=_BUDGET, judges=["calls", "relevance"])
registry.agent("choosy", model=_MODEL, tools=_TOOLS, budget=_BUDGET, select_tools=3)
registry.agent("mortally_judged", model=_MODEL, budget=_BUDGET, judges=["mortal"])
registry.agent(
    "thoughtful",
    model=_MODEL,
    tools=_TOOLS,
    budget={**_BUDGET, "max_tokens": None},
    think="low",
    compact_at_tokens=1_000,
)
registry.agent(
    "knowing",
    model=_MODEL,
    tools=["look"],
    budget=_BUDGET,
    memory=True,
    vault=str(Path(__file__).parent / "vault"),
)
registry.agent("minding", model=_MODEL, budget=_BUDGET, memory=_MODEL)
for name, asks in (("expert", ()), ("helper", ("expert",)), ("lead", ("helper", "expert"))):
    registry.agent(
        name,
        model=_MODEL if name == "lead" else f"scripted:{journal.team_file(journal.directory(), name)}",
        tools=(*_TOOLS, *map(registry.agent_tool, asks)),
        budget=_BUDGET,
        description="Knows more.",
    )
registry.agent("modest", model=_MODEL, system="Little.", tools=_TOOLS)
