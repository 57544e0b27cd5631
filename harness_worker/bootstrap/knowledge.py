"""What agents know besides their history: memories and documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final

from harness_worker.adapters.clock import SystemClock
from harness_worker.bootstrap.retrieval import make_retriever
from harness_worker.config import Settings
from harness_worker.core.prompting.vault_tool import context_pack_tool, with_vault_tool
from harness_worker.core.registration.tools import AgentSpec, ToolSpec
from harness_worker.ports import MemoryStore, Retriever, Vault
from harness_worker.turn.gathering import Gathering, PackFinder

_VAULT: Final = "harness_worker.adapters.vault.directory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What the agents of a process know. Made once per process, so that documents are read once.

    Args:
        agents: The agents that are served, by name; those with documents have the tool that searches them.
        vaults: Documents, by agent.
        tools: The tool that searches documents, by its name; empty if no agent has any.
        retriever: Ranks texts; ``None`` if it is not needed.
    """

    agents: Mapping[str, AgentSpec]
    vaults: Mapping[str, Vault] = field(default_factory=dict[str, Vault])
    tools: Mapping[str, ToolSpec] = field(default_factory=dict[str, ToolSpec])
    retriever: Retriever | None = None

    def gathering(self, settings: Settings, memories: MemoryStore) -> Gathering | None:
        """Makes what loads this knowledge for a turn; ``None`` if no agent has any."""
        if self.retriever is None:
            return None
        return Gathering(
            memories=memories,
            vaults=self.vaults,
            retriever=self.retriever,
            clock=SystemClock(),
            timeout_s=settings.context_timeout_s,
        )


def make_knowledge(settings: Settings, agents: Mapping[str, AgentSpec]) -> Knowledge:
    """What these agents know; agents without memory and documents cost nothing.

    Raises:
        ConfigError: A vault's directory is missing or cannot be read, or the retriever is not installed.
    """
    directories = {name: where for name, agent in agents.items() if (where := agent.vault or settings.vault)}
    if not directories and not any(agent.memory for agent in agents.values()):
        return Knowledge(agents=agents)
    retriever = make_retriever(semantic=settings.retriever == "semantic")
    vaults = _vaults(directories, retriever)
    tool = context_pack_tool(PackFinder(vaults=vaults), threshold_chars=settings.artifact_threshold_chars)
    offered = {name: with_vault_tool(agent, tool) if name in vaults else agent for name, agent in agents.items()}
    tools = {tool.name: tool} if vaults else {}
    return Knowledge(agents=offered, vaults=vaults, tools=tools, retriever=retriever)


def _vaults(directories: Mapping[str, str], retriever: Retriever) -> Mapping[str, Vault]:
    """One vault for each directory, however many agents share it."""
    if not directories:
        return {}
    kind = import_module(_VAULT).DirectoryVault
    made = {directory: kind(directory, retriever) for directory in set(directories.values())}
    return {name: made[directory] for name, directory in directories.items()}
