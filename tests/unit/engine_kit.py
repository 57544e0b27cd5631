"""The real engine over fakes that a test can interrupt: a set clock, a journal and a gate in memory, a told model."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NoReturn, TypeAlias, cast

from harness_worker.adapters.memory.gate import MemoryGate
from harness_worker.adapters.memory.locks import MemoryLocks
from harness_worker.bootstrap.retrieval import make_retriever
from harness_worker.core.approvals import Answer, answer
from harness_worker.core.budget import BudgetLimits, Usage
from harness_worker.core.outcomes import content_of
from harness_worker.core.prompting.prompt import RequestKind
from harness_worker.core.records import Call, Turn
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.hooks import Hooks
from harness_worker.core.registration.registry import Registry
from harness_worker.core.registration.tools import Arguments, ToolSpec
from harness_worker.core.visits import Visit
from harness_worker.errors import PermanentError, TransientError
from harness_worker.ports import DeadlineReached, ModelReply, ModelRequest, RunningCall, ignore
from harness_worker.turn.coordinator import Coordinator
from harness_worker.turn.finalizer import Finalizer
from harness_worker.turn.hooking import HookCaller
from harness_worker.turn.model_step import ModelStep
from harness_worker.turn.running.call_runner import call_runner
from harness_worker.turn.running.job import Canvas, Job
from harness_worker.turn.running.locking import LockKeeper
from harness_worker.turn.running.tool_body import ToolBody
from harness_worker.turn.tool_selector import ToolSelector
from tests.unit.builders import NOW, READER, RUNNER, TIMING, a_turn
from tests.unit.memory_store import MemoryArtifacts, MemoryTurnStore

TURN_ID = "turn"
TIMEOUT_S = 60.0
SOON_S = 90.0
MODEL_TIMEOUT_S = 30.0
THRESHOLD_CHARS = 200
Action = Callable[[], object]
Told: TypeAlias = ModelReply | BaseException | Callable[[], ModelReply]


@dataclass(slots=True)
class SetClock:
    """Implements ``ports.Clock``: stands still until it is set, or somebody waits on it; remembers each wait."""

    now_s: float = NOW
    waits: list[float] = field(default_factory=list[float])

    def monotonic(self) -> float:
        """Now."""
        return self.now_s

    def wait(self, seconds: float) -> None:
        """Pass the time at once."""
        self.waits.append(seconds)
        self.now_s += seconds


@dataclass(slots=True)
class SetStop:
    """Implements ``ports.StopSignal``: passes the time at once."""

    clock: SetClock
    told: bool = False

    def is_set(self) -> bool:
        """Whether it was told."""
        return self.told

    def wait(self, timeout: float | None = None) -> bool:
        """Pass the time, unless it was told."""
        if not self.told:
            self.clock.wait(timeout or 0.0)
        return self.told


class Interrupted:
    """A port with actions to do before or after its operations, each once, in the order given.

    An action may raise: before the operation that is a request that was never heard, after it an answer that was.
    """

    def __init__(self, target: Callable[[], object]) -> None:
        self._target = target
        self.before: dict[str, list[Action]] = defaultdict(list)
        self.after: dict[str, list[Action]] = defaultdict(list)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def asked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any operation
            _do_next(self.before[name])
            answer = getattr(self._target(), name)(*args, **kwargs)
            _do_next(self.after[name])
            return answer

        return asked


def _do_next(actions: list[Action]) -> None:
    if actions:
        actions.pop(0)()


@dataclass(slots=True)
class Sent:
    """Implements ``ports.Dispatcher``: keeps what it was given."""

    advanced: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    begun: list[str] = field(default_factory=list[str])
    stops: int = 0
    judged: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    chords: list[list[str]] = field(default_factory=list[list[str]])
    chains: list[list[str]] = field(default_factory=list[list[str]])
    calls: dict[str, Call] = field(default_factory=dict[str, Call])

    @property
    def advances(self) -> int:
        """How often somebody was asked to look at a turn."""
        return len(self.advanced)

    def advance(self, turn_id: str, priority: str, *, begins: bool = False) -> bool:
        """See ``ports.Dispatcher.advance``."""
        self.advanced.append((turn_id, priority))
        if begins:
            self.begun.append(turn_id)
        return True

    def stop(self, turn_id: str) -> None:  # noqa: ARG002 - the port's signature
        """See ``ports.Dispatcher.stop``."""
        self.stops += 1

    def judge(self, turn_id: str, judge: str) -> None:
        """See ``ports.Dispatcher.judge``."""
        self.judged.append((turn_id, judge))

    def chord(self, turn: Turn, calls: Sequence[Call]) -> None:  # noqa: ARG002 - the port's signature
        """See ``ports.Dispatcher.chord``."""
        self.chords.append(self._keep(calls))

    def chain(self, turn: Turn, calls: Sequence[Call]) -> None:  # noqa: ARG002 - the port's signature
        """See ``ports.Dispatcher.chain``."""
        self.chains.append(self._keep(calls))

    def _keep(self, calls: Sequence[Call]) -> list[str]:
        self.calls.update({call.call_id: call for call in calls})
        return [call.call_id for call in calls]


@dataclass(slots=True)
class ToldModel:
    """Implements ``ports.ModelClient``: says what it was told to, or raises it.

    Attributes:
        replies: What it says as a turn's steps, in order.
        asides: What it says beside them.
        requests: What it was asked.
    """

    replies: list[Told] = field(default_factory=list[Told])
    asides: list[Told] = field(default_factory=list[Told])
    requests: list[ModelRequest] = field(default_factory=list[ModelRequest])

    def complete(self, request: ModelRequest) -> ModelReply:
        """See ``ports.ModelClient.complete``."""
        self.requests.append(request)
        reply = (self.replies if request.kind is RequestKind.STEP else self.asides).pop(0)
        if isinstance(reply, BaseException):
            raise reply
        return reply if isinstance(reply, ModelReply) else reply()


@dataclass(slots=True)
class KeptBlobs:
    """Implements ``ports.BlobStore`` in a dict; ``broken`` refuses."""

    kept: dict[str, bytes] = field(default_factory=dict[str, bytes])
    broken: bool = False

    def put(self, key: str, data: bytes) -> str:
        """See ``ports.BlobStore.put``."""
        if self.broken:
            raise PermanentError("the artifact store is full")
        self.kept[f"memory://{key}"] = data
        return f"memory://{key}"

    def get(self, url: str) -> bytes:
        """See ``ports.BlobStore.get``."""
        if url not in self.kept:
            raise PermanentError(f"there is no artifact at {url}")
        return self.kept[url]

    def delete(self, url: str) -> None:
        """See ``ports.BlobStore.delete``."""
        if self.broken:
            raise TransientError("the artifact store does not answer")
        self.kept.pop(url, None)


class Engine:
    """One turn in the engine.

    Args:
        hooks: The agent's.
        effects: Its tools: name and effect; a name that starts with ``safe`` may be repeated after a crash, one that
            starts with ``same`` need not run twice, one that starts with ``ask`` needs approval, which one with
            ``soon`` in it waits for ``SOON_S``, one with ``lock`` in it takes the lock ``one``.
    """

    def __init__(self, *hooks: Hooks, **effects: Effect | None) -> None:
        self.clock = SetClock()
        self.store = MemoryTurnStore(self.clock.monotonic)
        self.gate = self._new_gate()
        self.locks = MemoryLocks(lease_ttl_s=TIMING.lease_ttl_s, clock=self.clock.monotonic)
        self.seen_store = Interrupted(lambda: self.store)
        self.artifacts = MemoryArtifacts(self.store.artifacts)
        self.seen_gate = Interrupted(lambda: self.gate)
        self.sent = Sent()
        self.seen_sent = Interrupted(lambda: self.sent)
        self.model, self.blobs = ToldModel(), KeptBlobs()
        self.bodies: dict[str, Callable[[], object]] = {}
        self.ran: list[str] = []
        self.stop = SetStop(self.clock)
        self.late: list[str] = []
        self._registry = self._tools(hooks, effects or {"look": Effect.READ_ONLY, "write": Effect.LOCAL_WRITE})
        self.failures: Counter[str] = Counter()
        self.hooks = HookCaller(self.failed)
        self.finalizer = Finalizer(
            agents=self._registry.agents,
            store=cast("Any", self.seen_store),
            hooks=self.hooks,
            dispatcher=cast("Any", self.seen_sent),
            on_failure=self.failed,
            trace=ignore,
        )
        self.coordinator = self._coordinator()
        self.runs_calls_with = self._runs_calls_with()
        self.runner = call_runner(**self.runs_calls_with)
        self.store.insert_turn(a_turn(id=TURN_ID, budget=BudgetLimits(timeout_s=TIMEOUT_S)))

    @property
    def turn(self) -> Turn:
        """The turn as it stands."""
        return self.store.turns[TURN_ID]

    @property
    def calls(self) -> tuple[Call, ...]:
        """Its calls as they stand."""
        loaded = self.store.load(TURN_ID)
        return loaded.calls if loaded else ()

    @property
    def contents(self) -> list[str]:
        """What the model would read of each call that has an outcome."""
        return [content_of(call.outcome) for call in self.calls if call.outcome is not None]

    @property
    def event_types(self) -> list[str]:
        """The types of its events."""
        return [event.type for event in self.store.events]

    @property
    def tools(self) -> Mapping[str, ToolSpec]:
        """What tool processes serve, by name."""
        return self.runs_calls_with["tools"]

    def failed(self, what: str) -> None:
        """Count a hook's point, or a step of a turn's end, that failed."""
        self.failures[what] += 1

    def flush(self) -> None:
        """Lose everything the gate knows."""
        self.gate = self._new_gate()

    def says(self, *replies: Told, asides: Sequence[Told] = ()) -> None:
        """What the model will say, in order, as steps and beside them."""
        self.model.replies += replies
        self.model.asides += asides

    def agent_is(self, **options: Any) -> None:  # noqa: ANN401 - any of an agent's
        """Give the agent other options."""
        agents = {name: replace(agent, **options) for name, agent in self.coordinator.agents.items()}
        self.coordinator = replace(self.coordinator, agents=agents)

    def run_calls_with(self, **parts: Any) -> None:  # noqa: ANN401 - any of a runner's
        """Give the runner of calls other parts."""
        self.runs_calls_with |= parts
        self.runner = call_runner(**self.runs_calls_with)

    def work(self) -> None:
        """Work the turn to its end, each call served as soon as it is sent."""
        while not self.turn.status.is_final:
            self.advance()
            for call_id in sorted(set(self.sent.calls) - {call.call_id for call in self.calls if call.outcome}):
                self.run(call_id)

    def advance(self) -> None:
        """Look at the turn."""
        self.coordinator.advance(TURN_ID)

    def answer(self, call_id: str, decision: Literal["approve", "deny"], **said: Any) -> bool:  # noqa: ANN401
        """Say what a person says; whether anybody waited for it."""
        rule = partial(answer, call_id=call_id, said=Answer(decision=decision, **said))
        return bool(self.store.transact(TURN_ID, rule))

    def dispatched(self, *tools: str) -> None:
        """Have the model ask for these tools, and send them."""
        self.says(asks(*tools))
        self.advance()

    def job(self, call_id: str = "0.0", runner: str = RUNNER) -> Job:
        """The message that was sent for a call."""
        call = self.sent.calls[call_id]
        return Job(
            turn_id=TURN_ID,
            call_id=call_id,
            attempt=call.attempt,
            tool=call.tool,
            is_read=call.is_read,
            runner=runner,
        )

    def run(self, call_id: str = "0.0", runner: str = RUNNER) -> Canvas:
        """Serve that message in a tool process."""
        return self.runner.run(self.job(call_id, runner))

    def alive(self, call_id: str = "0.0") -> RunningCall:
        """What its process's parent says of it."""
        return RunningCall(turn_id=TURN_ID, call_id=call_id, attempt=self.sent.calls[call_id].attempt, runner=RUNNER)

    def _new_gate(self) -> MemoryGate:
        return MemoryGate(lease_ttl_s=TIMING.lease_ttl_s, clock=self.clock.monotonic)

    def _tools(self, hooks: Sequence[Hooks], effects: dict[str, Effect | None]) -> Registry:
        registry = Registry()
        for name, effect in effects.items():
            safe = effect is Effect.READ_ONLY or name.startswith("safe")
            registry.add_tool(
                self._function(name),
                name=name,
                schema={"type": "object"},
                description="A tool.",
                effect=effect,
                retry_safe=safe,
                lock="one" if "lock" in name else None,
                approval="always" if name.startswith("ask") else "never",
                approval_timeout_s=SOON_S if "soon" in name else None,
                idempotent=name.startswith("same"),
                resource_keys=no_keys if effect is Effect.READ_ONLY else None,
            )
        registry.agent("agent", model="told", system="be brief", tools=list(effects), hooks=hooks)
        return registry

    def _function(self, name: str) -> Callable[[dict[str, Any]], object]:
        def body(_arguments: dict[str, Any]) -> object:
            self.ran.append(name)
            return self.bodies.get(name, lambda: f"{name} done")()

        return body

    def _coordinator(self) -> Coordinator:
        owners = itertools.count(1)
        store = cast("Any", self.seen_store)
        step = ModelStep(
            store=store,
            models={"": self.model},
            clock=self.clock,
            timeout_s=MODEL_TIMEOUT_S,
            hint=ignore,
            hooks=self.hooks,
            artifact_reader=READER,
            gathering=None,
            selector=ToolSelector(make_retriever),
        )
        return Coordinator(
            store=store,
            gate=cast("Any", self.seen_gate),
            dispatcher=cast("Any", self.seen_sent),
            model_step=step,
            agents=self._registry.agents,
            holding=self._holding,
            new_owner=lambda: f"visit-{next(owners)}",
            timing=TIMING,
            finalizer=self.finalizer,
            threshold_chars=THRESHOLD_CHARS,
            hooks=self.hooks,
            clock=self.clock,
            artifact_reader=READER,
        )

    def _runs_calls_with(self) -> dict[str, Any]:
        artifacts = itertools.count(1)
        body = ToolBody(
            soft_deadline=self._soft_deadline,
            blobs=self.blobs,
            clock=self.clock,
            new_artifact_id=lambda: f"art_{next(artifacts)}",
            threshold_chars=THRESHOLD_CHARS,
        )
        return {
            "store": self.seen_store,
            "artifacts": self.artifacts,
            "gate": self.seen_gate,
            "dispatcher": self.seen_sent,
            "body": body,
            "keeper": LockKeeper(locks=self.locks, clock=self.clock),
            "tools": self._registry.tools,
            "own": {},
            "agents": self._registry.agents,
            "hooks": self.hooks,
            "on_late": lambda: self.late.append("late"),
            "timing": TIMING,
            "clock": self.clock,
        }

    @contextmanager
    def _holding(self, _visit: Visit) -> Generator[SetStop]:
        yield self.stop

    @contextmanager
    def _soft_deadline(self, remaining_s: float, is_revoked: Callable[[], bool]) -> Generator[None]:
        """Stops a body when it ends, if it should have been stopped by then."""
        until = self.clock.now_s + remaining_s
        yield
        if self.clock.now_s >= until or is_revoked():
            raise DeadlineReached


def kinds(engine: Engine) -> list[str]:
    """The kind of each request to the model."""
    return [request.kind.value for request in engine.model.requests]


def no_keys(_arguments: object) -> list[str]:
    """The resource keys of a read that conflicts with nothing."""
    return []


def keys_by_n(engine: Engine) -> Engine:
    """Have what a read touches follow from its argument ``n``; a negative one makes it run alone."""

    def keys(arguments: Arguments) -> tuple[str, ...] | None:
        n: Any = arguments.get("n")
        return () if n is None else (str(n),) if n >= 0 else None

    (agent,) = engine.coordinator.agents.values()
    engine.agent_is(tools=tuple(replace(tool, keys=keys) for tool in agent.tools))
    return engine


def asks(*tools: str, text: str = "") -> ModelReply:
    """A reply that asks for these tools."""
    uses: list[dict[str, Any]] = [
        {"type": "tool_use", "id": f"use-{i}", "name": tool, "input": {}} for i, tool in enumerate(tools)
    ]
    said: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    return ModelReply(content=(*said, *uses), stop_reason="tool_use", usage=Usage(output_tokens=1))


def answers(text: str) -> ModelReply:
    """A reply that asks for nothing."""
    return ModelReply(content=({"type": "text", "text": text},), stop_reason="end_turn", usage=Usage(output_tokens=1))


def raising(error: BaseException) -> Callable[[], NoReturn]:
    """An action that fails."""

    def act() -> NoReturn:
        raise error

    return act
