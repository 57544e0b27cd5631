"""Choosing, among many tools, those that fit a session's first words."""

from __future__ import annotations

from collections.abc import Callable

from harness_worker.core.prompting.tool_selection import chosen, words_of
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.ports import Retriever, TextIndex


class ToolSelector:
    """Ranks an agent's tools by words; each process keeps an agent's index, which is made when it is first needed.

    It has no lock, which might stay locked after an error: threads that begin at once may each make the index.

    Args:
        make_retriever: Makes the retriever, whose libraries are loaded only if tools are selected.
    """

    def __init__(self, make_retriever: Callable[[], Retriever]) -> None:
        self._make_retriever = make_retriever
        self._indexes: dict[str, TextIndex] = {}

    def choose(self, agent: AgentSpec, words: str) -> tuple[str, ...]:
        """The names of the tools that fit best, as many as the agent selects."""
        matches = self._index(agent).search(words, agent.select_tools or 0)
        return chosen(agent, [match.position for match in matches])

    def _index(self, agent: AgentSpec) -> TextIndex:
        if agent.name not in self._indexes:
            self._indexes[agent.name] = self._make_retriever().index([words_of(tool) for tool in agent.tools])
        return self._indexes[agent.name]
