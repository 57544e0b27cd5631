"""Loading what a turn's first model call needs besides its history: memory and context pack, at the same time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from harness_worker.core.memory.memories import chosen_facts, facts_of, preferences_of, scope_of
from harness_worker.core.prompting.prompt import NOTHING, Gathered
from harness_worker.core.records import Turn
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.run_context import RunContext
from harness_worker.core.sources.context_pack import ContextPack
from harness_worker.errors import ToolError, ToolTransientError, TransientError
from harness_worker.ports import Clock, MemoryStore, Retriever, StopSignal, Vault

log = logging.getLogger(__name__)

T = TypeVar("T")

DOCUMENTS: Final = 4
"""How many passages are given with the user's words."""

MOST_MEMORIES: Final = 500
TICK_S: Final = 0.05
"""How soon a stop is noticed, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """Loads what agents remember and documents from their vaults.

    Args:
        memories: The store of memories.
        vaults: Documents, by agent.
        retriever: Finds what fits the user's words.
        clock: Times the loading.
        timeout_s: How long a part may take, in seconds, before the turn goes on without it.
    """

    memories: MemoryStore
    vaults: Mapping[str, Vault]
    retriever: Retriever
    clock: Clock
    timeout_s: float

    def gather(self, turn: Turn, agent: AgentSpec, *, remaining_s: float, stop: StopSignal) -> Gathered:
        """Load what there is for the turn. Never raises: a part that fails or takes too long is left out and named.

        Args:
            turn: The turn, before its first model call.
            agent: The turn's agent.
            remaining_s: What is left of the turn's time, in seconds.
            stop: Set when the turn must be given up at once.
        """
        vault = self.vaults.get(agent.name)
        if vault is None and not agent.memory:
            return NOTHING
        memory = _Part("memory", partial(self._recall, turn) if agent.memory else None, _Recalled())
        context = _Part("context pack", partial(vault.pack, turn.input, DOCUMENTS) if vault else None, ContextPack())
        self._await(memory, context, timeout_s=min(self.timeout_s, remaining_s), stop=stop)
        recalled, memory_missed = memory.outcome()
        pack, context_missed = context.outcome()
        left_out = tuple(reason for reason in (memory_missed, context_missed) if reason)
        for reason in left_out:
            log.warning("turn %s goes on without its %s", turn.id, reason)
        return Gathered(facts=recalled.facts, pack=pack.with_preferences(recalled.preferences), left_out=left_out)

    def _recall(self, turn: Turn) -> _Recalled:
        memories = self.memories.recall(turn.tenant, scope_of(turn), MOST_MEMORIES)
        facts = facts_of(memories)
        fitting = (match.position for match in self.retriever.index(facts).search(turn.input, len(facts)))
        return _Recalled(facts=chosen_facts(facts, fitting), preferences=preferences_of(memories))

    def _await(self, *parts: _Part[Any], timeout_s: float, stop: StopSignal) -> None:
        until, futures = self.clock.monotonic() + timeout_s, [part.future for part in parts]
        while wait(futures, timeout=TICK_S).not_done and not stop.is_set() and self.clock.monotonic() < until:
            pass


@dataclass(frozen=True, slots=True, kw_only=True)
class PackFinder:
    """Searches the vault of a call's agent, for the tool ``get_context_pack``.

    Args:
        vaults: Documents, by agent.
    """

    vaults: Mapping[str, Vault]

    def __call__(self, query: str, limit: int, context: RunContext) -> ContextPack:
        """Find at most ``limit`` documents.

        Raises:
            ToolTransientError: The vault cannot be read now.
            ToolError: The agent has no vault.
        """
        vault = self.vaults.get(context.agent)
        if vault is None:
            raise ToolError("this agent has no documents", retryable=False)
        try:
            return vault.pack(query, limit)
        except TransientError as error:
            log.warning("documents of agent %s not read: %s", context.agent, error)
            raise ToolTransientError("the documents cannot be read now; try again") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recalled:
    """The memories that the model is given."""

    facts: tuple[str, ...] = ()
    preferences: tuple[str, ...] = ()


class _Part(Generic[T]):
    """A loader under way on a separate thread, which is not waited for if it takes too long.

    Args:
        name: What is loaded.
        load: Loads it; ``None`` if there is nothing to load.
        otherwise: The value if loading fails.
    """

    def __init__(self, name: str, load: Callable[[], T] | None, otherwise: T) -> None:
        self.future: Future[T] = Future()
        self._name = name
        self._otherwise = otherwise
        if load is None:
            self.future.set_result(otherwise)
        else:
            try:
                threading.Thread(target=self._run, args=(load,), name=name, daemon=True).start()
            except RuntimeError as error:  # the system refuses a thread
                self.future.set_exception(error)

    def outcome(self) -> tuple[T, str]:
        """The loaded value, or the other one together with the reason why loading failed."""
        if not self.future.done():
            return self._otherwise, f"{self._name}: it took too long"
        error = self.future.exception()
        if error is None:
            return self.future.result(), ""
        return self._otherwise, f"{self._name}: {type(error).__name__}: {error}"

    def _run(self, load: Callable[[], T]) -> None:
        try:
            self.future.set_result(load())
        except BaseException as error:  # noqa: BLE001 - never raises: the turn goes on without this part
            self.future.set_exception(error)
