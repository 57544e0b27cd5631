"""Tools and agents as values: registrations, checked and complete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from harness_worker.core.registration.delegation import Delegation
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.hooks import Hooks, overrides
from harness_worker.core.registration.thinking import ThinkLevel
from harness_worker.core.run_context import RunContext

Arguments: TypeAlias = dict[str, Any]
ApprovalPolicy: TypeAlias = Literal["always", "never"] | Callable[[Any], bool]
LockPolicy: TypeAlias = str | Callable[[Any], str | None] | None
ResourceKeys: TypeAlias = Callable[[Arguments], tuple[str, ...] | None]
"""Gives the resource keys of bound arguments; ``None`` if they are unknown, so that the call runs alone."""

ToolKind: TypeAlias = Literal["retrieval", "web"]
"""Where a tool's answers come from: one's own documents, or the web. Recorded in the decision of turns that use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundArguments:
    """Arguments that fit a tool's schema.

    Args:
        values: The arguments as they will be run, a JSON object.
        was_coerced: Whether a value had to be converted to fit.
    """

    values: Arguments
    was_coerced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """One registered tool.

    Args:
        name: Matches ``[A-Za-z0-9_-]{1,64}``.
        description: What the model reads about it.
        schema: JSON Schema of its arguments, an object.
        effect: What it does to the world; ``None`` is unknown, and makes its calls sequential.
        idempotent: Whether a call that repeats one need not be run again (see ``replay.py``).
        retry_safe: Whether the same call may be run again after a crash, with the same ``ctx.idempotency_key``.
        timeout_s: The tool's own time limit, in seconds from the moment a call is admitted.
        queue: The Celery queue that its calls are sent to.
        approval: Whether a person has to agree before it runs; a function is given bound arguments.
        lock: Gives, for bound arguments, the name that one call at a time holds over all turns of a tenant.
        bind: Checks a model's arguments. Raises ``ArgumentsInvalid``.
        keys: The resource keys of validated arguments; ``None`` if they are unknown, so that the call runs alone.
        invoke: Runs the tool on bound arguments and returns what its function returned. Raises ``ArgumentsOutdated`` if
            they no longer fit.
        approval_timeout_s: How long a person may take to answer, in seconds; ``None``: as the setting says.
        kind: Where its answers come from; ``None``: elsewhere.
        delegation: Set if the tool is an agent, whose calls are turns; then ``invoke`` is never called.
        checks_formats: Whether ``bind`` enforces the schema's ``format`` of strings, which a raw JSON Schema does not.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    effect: Effect | None
    idempotent: bool
    retry_safe: bool
    timeout_s: float
    queue: str
    approval: ApprovalPolicy
    lock: Callable[[Arguments], str | None] | None
    bind: Callable[[Arguments], BoundArguments]
    keys: ResourceKeys
    invoke: Callable[[Arguments, RunContext], object]
    approval_timeout_s: float | None = None
    kind: ToolKind | None = None
    delegation: Delegation | None = None
    checks_formats: bool = True

    def needs_approval(self, values: Arguments) -> bool:
        """Whether a person has to agree before it runs on these bound arguments."""
        return self.approval == "always" if isinstance(self.approval, str) else self.approval(values)

    @property
    def is_read(self) -> bool:
        """Whether the gate decides its calls' outcomes; SQL decides those of all other tools."""
        return self.effect is Effect.READ_ONLY


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """One registered agent: a model, a system text, and the tools it may use.

    ``think`` is how hard it thinks; ``reflect_every``: after how many steps it reflects even if nothing failed.
    ``compact_at_tokens`` is the length of a prompt at which the history is compacted; ``None``: never.
    ``memory``: it remembers what its users say, found by rules or by the named model. ``vault`` is the directory of its
    documents. ``show_citations``: the sources that an answer cites are listed after it.
    ``judges`` are names. ``select_tools`` is how many of its tools a session is offered; ``None``: all.
    ``description`` is what other agents' models read about it.
    """

    name: str
    model: str
    system: str
    tools: tuple[ToolSpec, ...]
    budget: Mapping[str, float | int | None] = field(default_factory=dict[str, float | int | None])
    parallel: bool = True
    hooks: tuple[Hooks, ...] = ()
    think: ThinkLevel = "off"
    reflect_every: int | None = None
    compact_at_tokens: int | None = None
    judges: tuple[str, ...] = ()
    memory: bool | str = False
    vault: str | None = None
    show_citations: bool = False
    select_tools: int | None = None
    description: str = ""

    @property
    def memory_model(self) -> str | None:
        """The model that finds what is worth remembering; ``None`` if rules do, or nothing is remembered."""
        return self.memory if isinstance(self.memory, str) else None

    @property
    def asks_hooks(self) -> bool:
        """Whether a hook must be asked before a call is sent."""
        return any(overrides(hook, "on_pre_tool_use") for hook in self.hooks)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of its tools, in their order."""
        return tuple(tool.name for tool in self.tools)

    def tool(self, name: str) -> ToolSpec | None:
        """The tool with that name, if the agent has it."""
        return next((tool for tool in self.tools if tool.name == name), None)
