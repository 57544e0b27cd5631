"""The model and the tools of a simulated turn: what is asked for, and what it does when it runs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Protocol

from harness_worker.core.budget import BudgetLimits, Usage
from harness_worker.core.prompting.prompt import RequestKind
from harness_worker.core.registration.delegation import INPUT, Delegation
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.hooks import Hooks
from harness_worker.core.registration.tools import AgentSpec, Arguments, BoundArguments, ToolSpec
from harness_worker.core.run_context import RunContext
from harness_worker.errors import ArgumentsInvalid, ModelError, Stopped, ToolError, TransientError
from harness_worker.ports import DeadlineReached, ModelReply, ModelRequest
from tests.unit.simulation.faults import Fault, Faults
from tests.unit.simulation.kernel import Kernel

TOOL_TIMEOUT_S = 10.0
HASTY_S = 5.0
DURATIONS_S = (0.02, 0.02, 0.5, 0.02, 0.02, 0.5, 3, 3, 3, 3, 7, 14)
LONG_OUTPUT_CHARS = 101
ASKS_AGENT = 0.4
READ, SAFE_WRITE, WRITE = "read", "safe_write", "write"
HELPER, EXPERT = "helper", "expert"
"""Agents that are asked by others: the agent may ask the helper, who may ask the expert."""

SAME_READ, SAME_WRITE = "same_read", "same_write"
"""Tools that say of themselves that what succeeded need not be done twice; their calls are often equal."""

THOUGHTFUL: dict[str, Any] = {"think": "low", "reflect_every": 2, "compact_at_tokens": 5}


class Watcher(Protocol):
    """Hears what tools do."""

    def entered(self, context: RunContext, tool: str) -> str:
        """A body starts; returns what it shall return."""
        ...

    def acted(self, context: RunContext, tool: str) -> None:
        """A body has its effect."""
        ...

    def left(self) -> None:
        """A body ends."""
        ...


def draw_call(random: Random, position: int, *, faults: Faults) -> dict[str, Any]:
    """One ``tool_use`` block."""
    name = random.choice([READ, READ, READ, SAFE_WRITE, WRITE, SAME_READ, SAME_WRITE])
    is_usual = name in (SAME_READ, SAME_WRITE) or random.random() < 0.1
    given = _same_again(random) if is_usual else _something(random, faults)
    if random.random() < 0.04:
        given["invalid"] = True
    if random.random() < 0.02:
        name = "nonsense"
    return {"type": "tool_use", "id": f"use-{position}", "name": name, "input": given}


def _same_again(random: Random) -> dict[str, Any]:
    key = random.choice(["x", "x", "y"])
    act_at = 0.5007_0093 if key == "x" else 0.5001_0073
    quick = {"duration_s": 0.02, "act_at": act_at, "deaf": False, "long": False, "crashes": False}
    return {**quick, "fails": key == "y", "final": False, "key": key}


def _something(random: Random, faults: Faults) -> dict[str, Any]:
    return {
        "duration_s": random.choice(DURATIONS_S),
        "act_at": random.random(),
        "fails": random.random() < 0.1,
        "deaf": random.random() < 0.2,
        "long": random.random() < 0.05,
        "crashes": faults.has(Fault.KILL_PROCESS) and random.random() < 0.05,
        "final": random.random() < 0.02,
        "key": random.choice(["a", "b", "c", "d", "e", "f"]),
    }


def draw_question(random: Random, position: int, whom: str) -> dict[str, Any]:
    """A ``tool_use`` block that asks another agent."""
    question = f"do something, {random.random()}"
    return {"type": "tool_use", "id": f"use-{position}", "name": whom, "input": {INPUT: question}}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedModel:
    """Implements ``ports.ModelClient``; asked twice for one step, it may say something else.

    Its prompts have as many tokens as messages. ``asked`` is what it was asked, by the text that it said.
    """

    kernel: Kernel
    faults: Faults
    pause: Callable[[], None]
    asked: dict[str, ModelRequest] = field(default_factory=dict[str, ModelRequest])

    def complete(self, request: ModelRequest) -> ModelReply:
        """See ``ports.ModelClient.complete``."""
        random = self.kernel.random
        self.pause()
        if request.stop.wait(min(random.uniform(0.3, 4.0), request.timeout_s)):
            raise Stopped("half a sentence")
        if self.faults.strikes(Fault.MODEL_ERROR, 0.1, random, self.kernel.now):
            raise TransientError("overloaded")
        if self.faults.strikes(Fault.MODEL_ERROR, 0.01, random, self.kernel.now):
            raise ModelError("refused")
        self.pause()
        said = f"{request.kind} {request.step}, reply {len(self.asked)}"
        self.asked[said] = request
        usage = Usage(input_tokens=len(request.messages), output_tokens=1)
        text = {"type": "text", "text": said}
        if request.kind is not RequestKind.STEP:
            return ModelReply(content=(text,), stop_reason=random.choice(["end_turn"] * 4 + ["refusal"]), usage=usage)
        asked = [tool.name for tool in request.tools if tool.delegation is not None]
        content = self._content(random, request.step, text, asked)
        return ModelReply(content=content, stop_reason="tool_use", usage=usage)

    def _content(
        self, random: Random, step: int, text: dict[str, Any], asked: Sequence[str]
    ) -> tuple[dict[str, Any], ...]:
        if step >= 4 or (step >= 1 and random.random() < 0.35):
            return (text,)
        calls = [self._call(random, position, asked) for position in range(random.randint(1, 5))]
        return (text, *calls)

    def _call(self, random: Random, position: int, whom: Sequence[str]) -> dict[str, Any]:
        if whom and random.random() < ASKS_AGENT:
            return draw_question(random, position, whom[0])
        return draw_call(random, position, faults=self.faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """When a running body is to be stopped, and how it finds out whether a signal is meant for it."""

    soft_at: float
    is_revoked: Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The tools, and the deadline that stops them.

    Args:
        kernel: Virtual time.
        watcher: Hears what they do.
        crash: Kills the process that calls it.
        pause: Where the process may be killed or stopped.
        asks: How likely it is that a call needs approval.
        locks: How likely it is that a call takes the lock.
        thinks: Whether the agent reflects, and sums up what grows too long.
    """

    kernel: Kernel
    watcher: Watcher
    crash: Callable[[], None]
    pause: Callable[[], None]
    limits: dict[str, Limit]
    asks: float = 0.0
    locks: float = 0.0
    thinks: bool = False

    def agents(self, hooks: tuple[Hooks, ...] = (), *, budget: BudgetLimits) -> dict[str, AgentSpec]:
        """The agent, the helper whom it may ask, and the expert whom the helper may ask."""
        agent = self.agent(hooks)
        asks = [(EXPERT, ()), (HELPER, (self._asking(EXPERT, budget),)), ("agent", (self._asking(HELPER, budget),))]
        return {name: replace(agent, name=name, tools=(*agent.tools, *more)) for name, more in asks}

    def agent(self, hooks: tuple[Hooks, ...] = ()) -> AgentSpec:
        """An agent with reads, writes that may be repeated after a crash or need not be done twice, and one other."""
        tools = (
            self._spec(READ, Effect.READ_ONLY, retry_safe=True),
            self._spec(SAFE_WRITE, Effect.LOCAL_WRITE, retry_safe=True),
            self._spec(WRITE, None, retry_safe=False),
            self._spec(SAME_READ, Effect.READ_ONLY, retry_safe=True, idempotent=True),
            self._spec(SAME_WRITE, Effect.NETWORK, retry_safe=False, idempotent=True),
        )
        agent = AgentSpec(name="agent", model="simulated", system="", tools=tools, hooks=hooks)
        return replace(agent, **THOUGHTFUL) if self.thinks else agent

    @contextmanager
    def soft_deadline(self, remaining_s: float, is_revoked: Callable[[], bool]) -> Generator[None]:
        """Implements ``ports.SoftDeadline``."""
        name = self.kernel.me().name
        self.limits[name] = Limit(soft_at=self.kernel.now + remaining_s, is_revoked=is_revoked)
        try:
            yield
        finally:
            del self.limits[name]

    def _spec(self, name: str, effect: Effect | None, *, retry_safe: bool, idempotent: bool = False) -> ToolSpec:
        return ToolSpec(
            name=name,
            description="",
            schema={"type": "object"},
            effect=effect,
            idempotent=idempotent,
            retry_safe=retry_safe,
            timeout_s=TOOL_TIMEOUT_S,
            queue="tools",
            approval=self._needs_approval,
            approval_timeout_s=HASTY_S if name == SAFE_WRITE else None,
            lock=self._lock_of if self.locks else None,
            bind=_bind,
            keys=lambda arguments: (arguments["key"],),
            invoke=lambda arguments, context: self._body(name, arguments, context),
        )

    def _asking(self, name: str, budget: BudgetLimits) -> ToolSpec:
        spec = self._spec(name, None, retry_safe=False)
        delegation = Delegation(agent=name, budget=budget)
        return replace(
            spec, approval="never", lock=None, keys=_no_keys, bind=_bind, timeout_s=60.0, delegation=delegation
        )

    def _needs_approval(self, given: Arguments) -> bool:
        """By the digits of another draw: with no approvals the dice fall as if there were none."""
        return given["act_at"] * 1_000 % 1 < self.asks

    def _lock_of(self, given: Arguments) -> str | None:
        return "lock" if given["act_at"] * 100_000 % 1 < self.locks else None

    def _body(self, tool: str, given: Arguments, context: RunContext) -> str:
        output = self.watcher.entered(context, tool)
        try:
            before_s = given["duration_s"] * given["act_at"]
            self._work(before_s, deaf=given["deaf"])
            self.watcher.acted(context, tool)
            if given["crashes"]:
                self.crash()
            self._work(given["duration_s"] - before_s, deaf=given["deaf"])
        finally:
            self.watcher.left()
        if given["fails"] or given["final"]:
            raise ToolError(f"failed: {output}", retryable=not given["final"])
        return output.ljust(LONG_OUTPUT_CHARS, ".") if given["long"] else output

    def _work(self, seconds: float, *, deaf: bool) -> None:
        self.pause()
        if deaf:
            self.kernel.pause(seconds)
            return
        limit, until = self.limits[self.kernel.me().name], self.kernel.now + seconds
        signalled = True
        while signalled:
            signalled = self.kernel.listen(max(0.0, min(until, limit.soft_at) - self.kernel.now))
            if self.kernel.now >= limit.soft_at or (signalled and limit.is_revoked()):
                raise DeadlineReached


def _no_keys(_arguments: Arguments) -> tuple[str, ...]:
    return ()


def _bind(arguments: Arguments) -> BoundArguments:
    if "invalid" in arguments:
        raise ArgumentsInvalid(("invalid: not an argument",))
    return BoundArguments(values=arguments)
