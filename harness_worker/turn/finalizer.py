"""What happens at a turn's end besides its rule, each part guarded: citations, four seals and three notices.

None of them can keep a turn from ending. Citations are found before the commit that ends the turn; the seals, which
must not be lost, are part of it (``core/sealing.py``); usage, judges and the end are reported after it.
docs/reference/decisions.md says where each of the nine steps of a turn's end takes place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.prompting.prompt import Prompt
from harness_worker.core.records import Turn
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.sealing import SEALS, Seal, ended_by, judges_of, retold
from harness_worker.core.sources.citations import Citation, cite
from harness_worker.ports import Dispatcher, TurnStore
from harness_worker.turn.hooking import HookCaller, tell_end, tell_usage
from harness_worker.turn.system_errors import is_passing

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalizer:
    """Ends turns; keeps no state of any turn.

    Args:
        agents: The agents that this process serves, by name.
        store: The journal.
        hooks: Calls the agents' hooks.
        dispatcher: Sends judges' messages.
        on_failure: Called with the name of each step that failed; several threads may call it at once.
        trace: Called with the id of each ended turn; never waits, never raises.
        seals: The steps that are part of the commit, by name.
    """

    agents: Mapping[str, AgentSpec]
    store: TurnStore
    hooks: HookCaller
    dispatcher: Dispatcher
    on_failure: Callable[[str], None]
    trace: Callable[[str], None]
    seals: tuple[tuple[str, Seal], ...] = SEALS

    def sealing(self, rule: Callable[[Snapshot], Decision[T]]) -> Callable[[Snapshot], Decision[T]]:
        """The rule, with the seals added to a decision that ends the turn; other decisions are not changed."""

        def sealed(snapshot: Snapshot) -> Decision[T]:
            decision = rule(snapshot)
            return decision if ended_by(snapshot, decision) is None else self._sealed(snapshot, decision)

        return sealed

    def citations(self, turn: Turn, text: str, prompt: Prompt) -> tuple[Citation, ...]:
        """The sources that a reply cites of those that the model was given; none if finding them fails."""
        return self._guarded("citations", turn, partial(cite, text, prompt.carried.sources, prompt.messages), ())

    def report(self, turn: Turn) -> None:
        """Report a turn whose end is committed. Never raises; costs nothing if there is nobody to report to."""
        self.trace(turn.id)
        agent = self.agents.get(turn.agent)
        if agent is None or not (agent.hooks or agent.judges or agent.memory_model):
            return
        loaded = self._guarded("load", turn, partial(self.store.load, turn.id), None)
        if loaded is None:
            return
        ended = loaded.turn
        self._guarded("usage", ended, partial(tell_usage, self.hooks, agent.hooks, ended), None)
        self._guarded("judges", ended, partial(self._send_judges, ended, agent), None)
        self._guarded("turn_end", ended, partial(tell_end, self.hooks, agent.hooks, ended), None)

    def _send_judges(self, ended: Turn, agent: AgentSpec) -> None:
        """Send the judges now; they would be found later anyway, because the commit made their scores due."""
        for judge in judges_of(ended, agent):
            self.dispatcher.judge(ended.id, judge)

    def _sealed(self, snapshot: Snapshot, decision: Decision[T]) -> Decision[T]:
        agent = self.agents.get(snapshot.turn.agent)
        for name, seal in self.seals:
            decision = self._guarded(name, snapshot.turn, partial(_seal, seal, snapshot, decision, agent), decision)
        return _seal(retold, snapshot, decision, agent)

    def _guarded(self, step: str, turn: Turn, work: Callable[[], T], otherwise: T) -> T:
        try:
            return work()
        except Exception as error:
            if is_passing(error):
                log.warning("step %s of the end of turn %s is left out: %r", step, turn.id, error)
            else:
                log.exception("step %s of the end of turn %s failed and is left out", step, turn.id)
            self.on_failure(step)
            return otherwise


def _seal(seal: Seal, snapshot: Snapshot, decision: Decision[Any], agent: AgentSpec | None) -> Decision[Any]:
    ended = ended_by(snapshot, decision)
    return decision if ended is None else seal(decision, ended, agent)
