"""The whole harness in one process, without broker or workers: for notebooks and tests."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from harness_worker.adapters.clock import SystemClock
from harness_worker.adapters.memory.events import NoEvents
from harness_worker.adapters.memory.gate import MemoryGate
from harness_worker.adapters.memory.locks import MemoryLocks
from harness_worker.adapters.sql.artifacts import SqlArtifacts
from harness_worker.adapters.sql.engine import close_for_good, make_engine
from harness_worker.adapters.sql.memories import SqlMemories
from harness_worker.adapters.sql.migrate import upgrade
from harness_worker.adapters.sql.scores import SqlScores
from harness_worker.adapters.sql.store import SqlTurnStore
from harness_worker.adapters.sql.transactions import read
from harness_worker.bootstrap.engine import Ports, make_artifact_reader, make_call_runner, make_coordinator, new_id
from harness_worker.bootstrap.knowledge import make_knowledge
from harness_worker.bootstrap.models import make_models
from harness_worker.bootstrap.registry import Registry as ServedRegistry
from harness_worker.bootstrap.tracing import make_traces, make_tracing
from harness_worker.config import Settings, load_settings
from harness_worker.core.budget import agent_limits
from harness_worker.core.progress import abandon
from harness_worker.core.records import Turn
from harness_worker.core.registration.registry import Registry
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.scoring.scores import ATTEMPTS, ScoreRow, pause_left
from harness_worker.core.turn_request import TurnRequest, queued_turn
from harness_worker.core.visits import Visit
from harness_worker.errors import ConfigError, TransientError
from harness_worker.ports import Dispatcher, Traces, ignore
from harness_worker.sessions import LEFT_BEHIND
from harness_worker.threads.timeouts import OverdueCalls
from harness_worker.turn.answering import Approver, nobody
from harness_worker.turn.coordinator import Coordinator
from harness_worker.turn.inline import InlineDispatcher
from harness_worker.turn.judging import Judging
from harness_worker.turn.results import TurnResult, turn_result
from harness_worker.turn.retries import look_retries
from harness_worker.turn.running.call_runner import CallRunner
from harness_worker.turn.tracing import Tracing
from harness_worker.urls import in_url
from harness_worker.wire import DEFAULT_TENANT, MEMORY, Priority

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 10.0
"""How long the caller waits before a judge, or the model that looks for memories, is asked again after a failure."""

LAST_TRACES_S = 2.0
"""How long :meth:`AgentHarness.close` may go on sending traces."""

NO_LEASE_S = 86_400.0
"""Threads do not die silently, so nothing counts as lost here, however long the interpreter is busy."""


class AgentHarness:
    """Runs turns in the calling process, with the engine that the fleet runs.

    Holds no state of any turn: several turns may run at once, from several threads.

    Args:
        registry: The agents and tools.
        settings: The settings; by default, those of the environment. Without a ``database_url``, the journal is an
            SQLite file that is removed with this object.

    Raises:
        ConfigError: An argument is of another kind, a setting is wrong, an agent's vault is missing, or something that
            a setting needs is not installed.
    """

    def __init__(self, registry: Registry, settings: Settings | None = None) -> None:
        given = load_settings() if settings is None else settings
        _check_kinds(registry, given)
        self._knowledge = make_knowledge(given, registry.agents)
        traces = make_traces(given)
        self._registry = registry
        self._models = make_models(given, registry.models)
        self._locks = MemoryLocks(lease_ttl_s=NO_LEASE_S)
        self._overdue = OverdueCalls()
        with ExitStack() as ending:
            home = Path(ending.enter_context(TemporaryDirectory(prefix="harness-", ignore_cleanup_errors=True)))
            url = given.database_url or f"sqlite:///{in_url(home)}/harness.db"
            alone = {"database_url": url, "home": home, "lease_ttl_s": NO_LEASE_S}
            self._settings = given.model_copy(update=alone)
            upgrade(url)
            self._engine = make_engine(url, durable=bool(given.database_url))
            ending.callback(close_for_good, self._engine)
            self._artifacts = SqlArtifacts(self._engine)
            self._artifact_reader = make_artifact_reader(self._settings, self._artifacts)
            self._memories = SqlMemories(self._engine)
            self._tracing = self._begin_tracing(traces)
            if self._tracing is not None:
                ending.callback(self._tracing.finish, LAST_TRACES_S)
            self._closed = weakref.finalize(self, ending.pop_all().close)

    def run_turn(  # noqa: PLR0913 - the options of a turn, by name
        self,
        session_id: str | None,
        user_message: str,
        *,
        agent: str | None = None,
        budget: Mapping[str, float | int | None] | None = None,
        metadata: Mapping[str, str] | None = None,
        parallel: bool | None = None,
        system_prompt_override: str | None = None,
        skill_context: str | None = None,
        approve: Approver = nobody,
    ) -> TurnResult:
        """Run a turn: work on one user message until there is an answer.

        Args:
            session_id: The conversation; ``None`` begins a new one.
            user_message: What the user said.
            agent: The agent to ask; may be left out if the registry has only one.
            budget: Limits below the agent's, by name.
            metadata: Strings to store with the turn; ``script`` chooses a scripted model's script.
            parallel: ``False`` runs every call by itself.
            system_prompt_override: Replaces the agent's system text.
            skill_context: Extra text for this turn.
            approve: Called with each call that needs approval, as ``{call_id, tool, arguments, expires_at}``. Returns
                ``True`` to run the call, a mapping to run it with those arguments, ``False`` to deny it, or a string to
                deny it for that reason. By default, every such call is denied.

        Raises:
            ConfigError: There is no such agent, an option or a limit makes no sense, or this object was closed.
            TransientError: The database did not answer within half a minute of retries.
        """
        self._check_open()
        spec = self._agent(agent)
        request = TurnRequest(
            input=user_message,
            session_id=session_id,
            budget=budget,
            metadata=metadata,
            parallel=parallel,
            system_prompt_override=system_prompt_override,
            skill_context=skill_context,
        )
        turn = queued_turn(
            request,
            turn_id=new_id(),
            tenant=DEFAULT_TENANT,
            agent=spec.name,
            caps=agent_limits(spec.budget),
            priority=Priority.INTERACTIVE,
            called="user_message",
        )
        return self._work(turn, approve)

    def scores(self, turn_id: str) -> tuple[ScoreRow, ...]:
        """The scores of a turn by its agent's judges, ordered by judge; missing ones are asked for now.

        A judge that fails is asked again after a pause. If the pause is long, it is not waited for, and the score stays
        due.

        Each score has ``judge``, ``score`` and ``reason``, or ``error``.

        Raises:
            ConfigError: This object was closed.
            TransientError: The database did not answer.
        """
        self._check_open()
        scores = SqlScores(self._engine)
        for row in scores.of_turn(turn_id):
            self._ask(turn_id, row.judge)
        return scores.of_turn(turn_id)

    def close(self) -> None:
        """Close the journal, remove it if it is this object's own, and close the connections to MCP servers."""
        self._closed()
        if isinstance(self._registry, ServedRegistry):
            self._registry.close()

    def _begin_tracing(self, traces: Traces | None) -> Tracing | None:
        store = SqlTurnStore(self._engine, NoEvents())
        tracing = make_tracing(self._settings, traces, store, self._knowledge.agents, ignore)
        if tracing is not None:
            tracing.start()
        return tracing

    def _check_open(self) -> None:
        if not self._closed.alive:
            raise ConfigError("this AgentHarness was closed; make a new one")

    def _work(self, turn: Turn, approve: Approver) -> TurnResult:
        dispatcher = InlineDispatcher(SystemClock(), approve, partial(self._left_behind, turn))
        coordinator, runner = self._parts_with(dispatcher)
        store, patiently = coordinator.store, look_retries(SystemClock())
        patiently(partial(store.insert_turn, turn), f"storing turn {turn.id}")
        try:
            dispatcher.drive(turn.id, coordinator, runner)
        except BaseException:  # an interrupt in a notebook: nobody else would end the turn and free its session
            _give_up(turn.id, coordinator)
            raise
        if self._registry.agents[turn.agent].memory_model is not None:
            self._remember(turn.id)
        what = f"reading turn {turn.id}"
        loaded = patiently(partial(store.load, turn.id), what)
        ended, calls = loaded if loaded is not None else (turn, ())
        return turn_result(ended, calls, patiently(partial(store.history, turn.id), what))

    def _parts_with(self, dispatcher: Dispatcher) -> tuple[Coordinator, CallRunner]:
        ports = Ports(
            settings=self._settings,
            store=SqlTurnStore(self._engine, NoEvents(), artifact_ttl_s=self._settings.artifact_ttl_s),
            artifacts=self._artifacts,
            artifact_reader=self._artifact_reader,
            gate=MemoryGate(lease_ttl_s=self._settings.lease_ttl_s),
            locks=self._locks,
            dispatcher=dispatcher,
            events=NoEvents(),
        )
        coordinator = make_coordinator(
            ports,
            knowledge=self._knowledge,
            memories=self._memories,
            models=self._models,
            holding=_unwatched,
            trace=ignore if self._tracing is None else self._tracing.tell,
        )
        runner = make_call_runner(ports, registry=self._registry, knowledge=self._knowledge, soft_deadline=_unlimited)
        return coordinator, runner

    def _remember(self, turn_id: str) -> None:
        """Look for what is worth remembering from an ended turn; a failure must not lose the turn's answer."""
        try:
            self._ask(turn_id, MEMORY)
        except TransientError as error:
            log.warning("memories of turn %s not looked for: %s", turn_id, error)

    def _left_behind(self, turn: Turn) -> Sequence[str]:
        values = {"of_tenant": turn.tenant, "of_session": turn.session_id, "turn_id": turn.id}
        return read(self._engine, lambda connection: connection.execute(LEFT_BEHIND, values).scalars().all())

    def _ask(self, turn_id: str, duty: str) -> None:
        """Ask a judge, or the model that looks for memories, unless it has answered; after a failure, ask again."""
        clock, scores = SystemClock(), SqlScores(self._engine)
        judging = Judging(
            store=SqlTurnStore(self._engine, NoEvents()),
            scores=scores,
            judges=self._registry.judges,
            models=self._models,
            agents=self._registry.agents,
            memories=self._memories,
            clock=clock,
            overdue=self._overdue,
        )
        for _ in range(ATTEMPTS):  # one that has answered is not asked again
            pause_s = scores.change(turn_id, duty, pause_left) or 0.0
            if pause_s > LONGEST_WAIT_S:  # as its provider asked: it stays due
                return
            clock.wait(pause_s)
            judging.judge(turn_id, duty)

    def _agent(self, name: str | None) -> AgentSpec:
        agents = self._registry.agents
        if name is None and len(agents) == 1:
            return next(iter(agents.values()))
        spec = agents.get(name) if isinstance(name, str) else None
        if spec is None:
            known = ", ".join(sorted(agents)) or "none"
            raise ConfigError(f"agent={name!r}: name one of the registry's agents: {known}")
        return spec


def _give_up(turn_id: str, coordinator: Coordinator) -> None:
    try:
        coordinator.store.transact(turn_id, coordinator.finalizer.sealing(abandon))
    except TransientError as error:  # what ended the drive is what the caller is to see
        log.warning("turn %s not cancelled, so its session waits until its time is over: %s", turn_id, error)


@contextmanager
def _unwatched(_visit: Visit) -> Generator[threading.Event]:
    """Visits need no heartbeat here, because nobody else can claim the turn or stop it."""
    yield threading.Event()


@contextmanager
def _unlimited(remaining_s: float, is_revoked: Callable[[], bool]) -> Generator[None]:  # noqa: ARG001 - the port's signature
    """Sets no limit, because a thread cannot be stopped; late results are dropped."""
    yield


def _check_kinds(registry: object, settings: object) -> None:
    """Refuse what is no registry or no settings: callers are not type-checked."""
    if not isinstance(registry, Registry):
        raise ConfigError(f"registry must be a Registry, not {registry!r}")
    if not isinstance(settings, Settings):
        raise ConfigError(f"settings must be Settings, not {settings!r}")
