"""The registry: tools, agents and judges as their authors declare them, checked at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeVar, Unpack, overload

from harness_worker.core.registration.agent_options import check_agent
from harness_worker.core.registration.callables import name_of
from harness_worker.core.registration.delegation import MOST_LEVELS
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.hooks import Hooks
from harness_worker.core.registration.judges import TIMEOUT_S, JudgeSpec, judge_spec
from harness_worker.core.registration.keywords import declares
from harness_worker.core.registration.raw_schema import inspect_raw
from harness_worker.core.registration.signature import inspect_function
from harness_worker.core.registration.subagent_tool import subagent_tool
from harness_worker.core.registration.thinking import COMPACT_AT_TOKENS, ThinkLevel
from harness_worker.core.registration.tool_options import (
    MAX_TIMEOUT_S,
    TIMEOUT_CEILING_S,
    TOOL_NAME,
    ToolKeywords,
    is_number,
    tool_options,
)
from harness_worker.core.registration.tool_spec import tool_spec
from harness_worker.core.registration.tools import AgentSpec, ApprovalPolicy, ToolSpec
from harness_worker.core.text import clean_json
from harness_worker.errors import ConfigError

F = TypeVar("F", bound=Callable[..., object])
_T = TypeVar("_T")

_EXAMPLES = {"tools": "find_notes", "hooks": "Audit()", "judges": "'polite'"}


class Registry:
    """Agents and the tools they may use. A wrong declaration raises ``ConfigError`` at once.

    Args:
        max_tool_timeout_s: The longest ``timeout_s`` of its tools, in seconds, in a notebook or a test. In a worker,
            ``HARNESS_MAX_TOOL_TIMEOUT_S`` applies instead.
    """

    def __init__(self, *, max_tool_timeout_s: float = MAX_TIMEOUT_S) -> None:
        if not (is_number(max_tool_timeout_s) and max_tool_timeout_s > 0):
            raise ConfigError(f"max_tool_timeout_s must be seconds above 0, not {max_tool_timeout_s!r}")
        self._tools: dict[str, ToolSpec] = {}
        self._functions: list[tuple[object, str]] = []
        self._agents: dict[str, AgentSpec] = {}
        self._judges: dict[str, JudgeSpec] = {}
        self._ceiling_s = TIMEOUT_CEILING_S.get(max_tool_timeout_s)

    @property
    def tools(self) -> Mapping[str, ToolSpec]:
        """Every tool by name."""
        return MappingProxyType(self._tools)

    @property
    def agents(self) -> Mapping[str, AgentSpec]:
        """Every agent by name."""
        return MappingProxyType(self._agents)

    @property
    def judges(self) -> Mapping[str, JudgeSpec]:
        """Every judge by name."""
        return MappingProxyType(self._judges)

    @property
    def models(self) -> frozenset[str]:
        """Every model that an agent, its memory or a judge names."""
        asked = (
            *(agent.model for agent in self._agents.values()),
            *(agent.memory_model for agent in self._agents.values()),
            *(judge.model for judge in self._judges.values()),
        )
        return frozenset(model for model in asked if model is not None)

    @overload
    def tool(
        self, fn: F, /, *, name: str | None = None, description: str | None = None, **options: Unpack[ToolKeywords]
    ) -> F: ...

    @overload
    def tool(
        self, name: str | None = None, *, description: str | None = None, **options: Unpack[ToolKeywords]
    ) -> Callable[[F], F]: ...

    @declares
    def tool(
        self,
        fn: object = None,
        /,
        *,
        name: object = None,
        description: str | None = None,
        **options: Unpack[ToolKeywords],
    ) -> Callable[..., object]:
        """Register a function as a tool; its type hints make the schema, its docstring the description.

        Args:
            fn: The function, to register it now; a name is taken here too.
            name: The tool's name for the model, by default the function's name.
            description: What the model reads about it; by default the docstring.
            **options: ``effect, idempotent, retry_safe, resource_keys, timeout_s, queue, approval, approval_timeout_s,
                lock, kind``.

        Returns:
            A decorator that returns the function unchanged, or the function.

        Raises:
            ConfigError: Something about it cannot work; the message names the tool and says what to change.
        """
        namespace = _callers_locals()
        if callable(fn):
            return self._add_hinted(fn, name, description, dict(options), namespace)
        if isinstance(fn, Effect):
            raise ConfigError(f"tool: what stands first is its function or its name; write effect=Effect.{fn.name}")
        if fn is not None and name is not None:
            raise ConfigError(f"tool {name!r}: {fn!r} is not a function")

        chosen = name if fn is None else fn

        def register(function: F) -> F:
            return self._add_hinted(function, chosen, description, dict(options), namespace)

        return register

    @declares
    def add_tool(
        self,
        fn: Callable[..., object],
        *,
        name: str,
        schema: Mapping[str, Any],
        description: str,
        **options: Unpack[ToolKeywords],
    ) -> str:
        """Register ``fn(args: dict, ctx)`` with a JSON Schema of its own; returns the name.

        The arguments reach ``fn`` exactly as the model gave them: no defaults, no coercion. ``ctx`` may be left out.

        Raises:
            ConfigError: Something about it cannot work; the message names the tool and says what to change.
        """
        label = self._label(name)
        checked = tool_options(options, label, self._ceiling_s)
        self._add(fn, tool_spec(name, description, inspect_raw(fn, schema, label), checked))
        return name

    @declares
    def agent(  # noqa: PLR0913 - the words of an agent's declaration
        self,
        name: str,
        *,
        model: str,
        system: str = "",
        tools: Iterable[str | ToolSpec | Callable[..., object]] = (),
        budget: Mapping[str, float | int | None] | None = None,
        parallel: bool = True,
        hooks: Iterable[Hooks] = (),
        think: ThinkLevel = "off",
        reflect_every: int | None = None,
        compact_at_tokens: int | Literal["auto"] | None = None,
        judges: Iterable[str] = (),
        memory: bool | str = False,
        vault: str | None = None,
        show_citations: bool = False,
        select_tools: int | None = None,
        description: str = "",
    ) -> AgentSpec:
        """Declare an agent.

        Args:
            name: The name by which turns ask for it.
            model: A model's name, or ``scripted:FILE``.
            system: Its system text; characters that databases and providers cannot store become U+FFFD.
            tools: Functions registered here, names of tools, or other agents as :meth:`agent_tool` returns them.
            budget: Its limits, which are the defaults and the caps of its turns; a missing key has the global default.
            parallel: ``False`` runs every call by itself.
            hooks: Called at points of its turns, in this order.
            think: How hard it thinks: ``off``, ``low``, ``medium`` or ``high``. Unless off, it reflects after a step
                with a call that ended as an error.
            reflect_every: It also reflects after this many steps, even if nothing failed.
            compact_at_tokens: Its history is summarised before a model call of this many tokens; ``"auto"`` means four
                fifths of 200,000.
            judges: The names of judges that score its turns once they have ended.
            memory: Whether it remembers what its users say: ``True`` finds memories by rules, a model's name with that
                model.
            vault: A directory of Markdown and text files whose passages are found for the user's words; by default
                ``HARNESS_VAULT``, if that is set.
            show_citations: Whether the sources that an answer cites are listed after it.
            select_tools: If it has more tools than this, a session is offered this many, those that fit its first words
                best.
            description: What it is good for; read by the models of agents that may ask it.

        Raises:
            ConfigError: The name is taken, a tool or a judge is unknown, or a limit makes no sense.
        """
        if _named(self._agents, name) is not None:
            raise ConfigError(f"agent {name!r} is declared twice; give each agent a name of its own")
        spec = AgentSpec(
            name=name,
            model=model,
            system=clean_json(system),
            tools=tuple(self._chosen(name, tool) for tool in _listed(name, "tools", tools)),
            budget={} if budget is None else budget,
            parallel=parallel,
            hooks=_listed(name, "hooks", hooks),
            think=think,
            reflect_every=reflect_every,
            compact_at_tokens=COMPACT_AT_TOKENS if compact_at_tokens == "auto" else compact_at_tokens,
            judges=tuple(self._known_judge(name, judge) for judge in _listed(name, "judges", judges)),
            memory=memory,
            vault=vault,
            show_citations=show_citations,
            select_tools=select_tools,
            description=clean_json(description),
        )
        check_agent(spec)
        self._check_levels(spec)
        self._agents[name] = spec
        return spec

    @declares
    def agent_tool(
        self,
        agent: str,
        *,
        description: str | None = None,
        approval: ApprovalPolicy = "never",
        approval_timeout_s: float | None = None,
        parallel: bool = True,
    ) -> ToolSpec:
        """An agent declared here, as a tool for another agent; a call of it, ``{"input": …}``, is a turn of its own.

        Args:
            agent: The agent's name, which is also the tool's.
            description: What the model reads about it; by default the agent's own description.
            approval: Whether a person has to agree before it is asked; a function gets ``input`` as an attribute.
            approval_timeout_s: How long that person may take, in seconds; ``None``: as the setting says.
            parallel: Whether it may run beside other agents called in the same message.

        Raises:
            ConfigError: There is no such agent yet, it has no description, or an option makes no sense.
        """
        spec = _named(self._agents, agent)
        if spec is None:
            known = ", ".join(self._agents) or "none"
            raise ConfigError(f"agent_tool: unknown agent {agent!r}; declare it first; there are: {known}")
        return subagent_tool(
            spec,
            description=description,
            approval=approval,
            approval_timeout_s=approval_timeout_s,
            parallel=parallel,
        )

    @declares
    def judge(
        self,
        name: str,
        fn: Callable[[Any], object] | None = None,
        *,
        model: str | None = None,
        criterion: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> str:
        """Declare a judge that may score turns once they have ended; returns the name.

        Args:
            name: Its name in agents' declarations and in scores; ``faithfulness`` and ``relevance`` have built-in
                criteria.
            fn: A function of the ended turn, a ``TurnResult``, that returns a ``Score`` or a number from 0 to 1.
            model: The model to ask instead of a function.
            criterion: What the model judges by.
            timeout_s: How long judging may take, in seconds.

        Raises:
            ConfigError: The name is taken, or it cannot work; the message names the judge and says what to change.
        """
        if _named(self._judges, name) is not None:
            raise ConfigError(f"judge {name!r} is declared twice; give each judge a name of its own")
        self._judges[name] = judge_spec(name, fn, model=model, criterion=criterion, timeout_s=timeout_s)
        return name

    def _check_levels(self, spec: AgentSpec) -> None:
        """Refuse too many levels of agents. None can call itself, because each is declared after its tools."""
        if self._levels(spec) > MOST_LEVELS:
            asked = ", ".join(tool.name for tool in spec.tools if tool.delegation is not None)
            most = f"agents may ask each other over {MOST_LEVELS} levels"
            raise ConfigError(f"agent {spec.name!r}: {most}; give it some of the tools that {asked} would ask for")

    def _levels(self, spec: AgentSpec) -> int:
        asked = (self._agents[tool.delegation.agent] for tool in spec.tools if tool.delegation is not None)
        return 1 + max((self._levels(each) for each in asked), default=0)

    def _known_judge(self, agent: str, judge: str) -> str:
        if _named(self._judges, judge) is None:
            known = ", ".join(self._judges) or "none"
            raise ConfigError(f"agent {agent!r}: unknown judge {judge!r}; declare it first; there are: {known}")
        return judge

    def _add_hinted(
        self, fn: F, name: object, description: str | None, options: Mapping[str, Any], namespace: Mapping[str, Any]
    ) -> F:
        chosen = name_of(fn) if name is None else name
        label = self._label(chosen)
        checked = tool_options(options, label, self._ceiling_s)
        function = inspect_function(fn, label, namespace)
        said = function.description if description is None or description == "" else description
        self._add(fn, tool_spec(str(chosen), said, function, checked))
        return fn

    def _label(self, name: object) -> str:
        """The tool's name in error messages; refuses a name that is taken or malformed."""
        if not isinstance(name, str) or TOOL_NAME.fullmatch(name) is None:
            raise ConfigError(f"tool {name!r}: a name is 1 to 64 of A-Z a-z 0-9 _ -; say name='…'")
        if name in self._tools:
            raise ConfigError(f"tool {name!r} is registered twice; give one of them another name with name='…'")
        return f"tool {name!r}"

    def _add(self, fn: Callable[..., object], spec: ToolSpec) -> None:
        self._tools[spec.name] = spec
        self._functions.append((fn, spec.name))

    def _take_back(self, names: Iterable[str]) -> None:
        for name in names:
            del self._tools[name]
        self._functions = [(fn, name) for fn, name in self._functions if name in self._tools]

    def _chosen(self, agent: str, tool: object) -> ToolSpec:
        """The tool that an entry in an agent's list means: a name, a function, or another agent."""
        if isinstance(tool, ToolSpec):
            return self._known_delegation(agent, tool)
        names = [tool] if isinstance(tool, str) else [name for fn, name in self._functions if fn is tool or fn == tool]
        if len(names) > 1:
            raise ConfigError(f"agent {agent!r}: {tool!r} is registered as {', '.join(names)}; list it by name")
        if not names or names[0] not in self._tools:
            other = tool.name if isinstance(tool, AgentSpec) else tool
            if _named(self._agents, other) is not None:
                raise ConfigError(f"agent {agent!r}: {other!r} is an agent; list registry.agent_tool({other!r})")
            known = ", ".join(self._tools) or "none"
            raise ConfigError(f"agent {agent!r}: unknown tool {tool!r}; register it first; there are: {known}")
        return self._tools[names[0]]

    def _known_delegation(self, agent: str, tool: ToolSpec) -> ToolSpec:
        if tool.delegation is None or tool.delegation.agent not in self._agents:
            raise ConfigError(f"agent {agent!r}: {tool.name!r} is not of this registry; name tools by their names here")
        return tool


def _named(found: Mapping[str, _T], name: object) -> _T | None:
    """The entry with that name; anything but text names none."""
    return found.get(name) if isinstance(name, str) else None


def _listed(agent: str, word: str, given: Iterable[_T]) -> tuple[_T, ...]:
    """The items of a list in an agent's declaration; refuses a single item that is not in a list."""
    if isinstance(given, str) or not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not type-checked
        raise ConfigError(f"agent {agent!r}: {word} must be a list, such as {word}=[{_EXAMPLES[word]}]")
    return tuple(given)


def _callers_locals() -> Mapping[str, Any]:
    """The local names where ``tool`` is called, for hints given as text that refer to a local class."""
    frame = inspect.currentframe()
    for _ in range(3):  # this function, ``tool``, and the check of its arguments
        frame = frame.f_back if frame else None
    return dict(frame.f_locals) if frame else {}
