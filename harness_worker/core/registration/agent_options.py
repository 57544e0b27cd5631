"""Checks of an agent's declaration."""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, Final, cast

from harness_worker.core.budget import BudgetLimits
from harness_worker.core.registration.author_code import Raised, attempt
from harness_worker.core.registration.callables import check_takes
from harness_worker.core.registration.hooks import Hooks, overrides
from harness_worker.core.registration.model_names import SCRIPTED, is_model_name
from harness_worker.core.registration.schema_draft import in_2020_12, problem_in_2020_12
from harness_worker.core.registration.thinking import THINK_LEVELS
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.errors import ConfigError

MAX_NAME_CHARS = 255

_ARGUMENT_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""The names that Claude accepts; any other would fail every turn of an agent that has the tool."""

_AMOUNTS = {"max_dollars", "timeout_s"}
"""Limits that may be fractions; the others are counts."""

_SWITCHES = ("parallel", "show_citations")

_POINTS: Final = tuple(name for name in vars(Hooks) if name.startswith("on_"))

_LIMITS = tuple(field.name for field in fields(BudgetLimits))


def check_agent(spec: AgentSpec) -> None:
    """Refuse a declaration that cannot work.

    Raises:
        ConfigError: The message names the first thing that is wrong, and what is allowed.
    """
    for problem in _problems(spec):
        raise ConfigError(f"agent {spec.name!r}: {problem}")
    for hook in spec.hooks:
        _check_points(hook, f"agent {spec.name!r}: hook {type(hook).__name__}")


def _name_problems(name: Any) -> Iterator[str]:  # noqa: ANN401 - whatever was declared
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable():
        yield f"its name must be a string of 1 to {MAX_NAME_CHARS} printable characters"
    if name in (".", ".."):
        yield f"its name may not be {name!r}, which the path of a URL cannot hold"


def _problems(spec: AgentSpec) -> Iterator[str]:
    model, system, vault = cast("tuple[Any, ...]", (spec.model, spec.system, spec.vault))
    yield from _name_problems(spec.name)
    if not is_model_name(model):
        yield f"model must be a model's name or 'scripted:FILE', not {model!r}"
    if not isinstance(system, str):
        yield f"system must be a string, not {type(system).__name__}"
    if not isinstance(cast("Any", spec.description), str):
        yield f"description must be a string, not {type(spec.description).__name__}"
    if vault is not None and (not isinstance(vault, str) or not vault):
        yield f"vault must be a directory's path, not {vault!r}"
    yield from _switch_problems(spec)
    yield from (f"tool {tool!r} is listed twice" for tool in _twice([tool.name for tool in spec.tools]))
    if not model.startswith(SCRIPTED):
        yield from _argument_problems(spec)
        yield from _schema_problems(spec)
    if not _is_count(spec.select_tools):
        yield f"select_tools must be a whole number, one or more, not {spec.select_tools!r}"
    yield from (f"judge {judge!r} is listed twice" for judge in _twice(spec.judges))
    yield from _hook_problems(spec.hooks)
    yield from _thinking_problems(spec)
    yield from budget_problems(spec.budget)


def _twice(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})


def _argument_problems(spec: AgentSpec) -> Iterator[str]:
    for tool in spec.tools:
        named: object = tool.schema.get("properties")
        for argument in cast("Mapping[str, object]", named) if isinstance(named, Mapping) else ():
            if _ARGUMENT_NAME.fullmatch(argument) is None:
                only = "Claude only takes names of 1 to 64 of A-Z a-z 0-9 _ . -; rename it, or leave the tool out"
                yield f"argument {argument!r} of its tool {tool.name!r}: {only}"


def _schema_problems(spec: AgentSpec) -> Iterator[str]:
    for tool in spec.tools:
        if problem := problem_in_2020_12(in_2020_12(tool.schema)):
            only = "Claude only takes what is valid in JSON Schema draft 2020-12; correct it, or leave the tool out"
            yield f"the schema of its tool {tool.name!r}: {problem}: {only}"


def _switch_problems(spec: AgentSpec) -> Iterator[str]:
    for word in _SWITCHES:
        if not isinstance(getattr(spec, word), bool):
            yield f"{word} must be True or False, not {getattr(spec, word)!r}"
    memory: Any = spec.memory
    if not isinstance(memory, bool) and not is_model_name(memory):
        yield f"memory must be True, False or the name of the model that looks for it, not {memory!r}"


def _hook_problems(hooks: Iterable[object]) -> Iterator[str]:
    for hook in hooks:
        if not issubclass(type(hook), Hooks):  # not isinstance, which believes a mock
            yield f"hooks must be instances of a subclass of harness_worker.Hooks, not {hook!r}"
        for name in _misnamed(type(hook)):
            near = get_close_matches(name, _POINTS, n=1)
            mend = f"did you mean {near[0]}?" if near else f"there are: {', '.join(_POINTS)};"
            what = f"hook {type(hook).__name__}: Hooks has no {name}"
            yield f"{what}; {mend} A method of your own needs a name that does not begin with on_"


def _misnamed(kind: type) -> list[str]:
    """The methods named like hooks that do not exist, except for names inherited from a base that is no ``Hooks``."""
    named = [
        (issubclass(base, Hooks), name, value)
        for base in kind.__mro__
        for name, value in tuple(vars(base).items())
        if name.startswith("on_") and name not in _POINTS
    ]
    elsewhere = {name for is_hooks, name, _ in named if not is_hooks}
    methods = {name for _, name, value in named if inspect.isroutine(value) and getattr(value, "__name__", "") == name}
    return sorted(methods - elsewhere)


def _check_points(hook: Hooks, label: str) -> None:
    for point in _POINTS:
        if not overrides(hook, point):
            if point in getattr(hook, "__dict__", ()):
                raise ConfigError(
                    f"{label}.{point} is set on the object, where nobody asks it; make it a method of its class"
                )
        elif not inspect.isdatadescriptor(inspect.getattr_static(type(hook), point)):  # a property may change
            method = attempt(getattr, hook, point)
            if not isinstance(method, Raised):
                check_takes(method, f"{label}.{point}", "the event")


def _thinking_problems(spec: AgentSpec) -> Iterator[str]:
    if spec.think not in THINK_LEVELS:
        yield f"think must be one of {', '.join(THINK_LEVELS)}, not {spec.think!r}"
    if not _is_count(spec.reflect_every):
        yield f"reflect_every must be a whole number, one or more, not {spec.reflect_every!r}"
    elif spec.reflect_every is not None and spec.think == "off":
        yield "reflect_every needs think='low' or more"
    if not _is_count(spec.compact_at_tokens):
        yield f"compact_at_tokens must be a whole number, one or more, or 'auto', not {spec.compact_at_tokens!r}"


def _is_count(given: object) -> bool:
    return given is None or (isinstance(given, int) and not isinstance(given, bool) and given > 0)


def budget_problems(budget: Any) -> Iterator[str]:  # noqa: ANN401 - what an author wrote
    """What is wrong with a mapping of limits, one line for each problem."""
    given: object = budget
    limits = cast("Mapping[object, object]", budget if isinstance(budget, Mapping) else {})
    if not isinstance(given, Mapping):
        yield f"budget must be a dict of limits, not {type(given).__name__}"
    for key, limit in limits.items():
        if key not in _LIMITS:
            yield f"budget has no limit {key!r}; there are: {', '.join(_LIMITS)}"
        elif isinstance(limit, int) and limit > sys.float_info.max:
            yield f"budget[{key!r}] is too large a number: give one below 1e308"
        elif limit is not None and not _is_limit(str(key), limit):
            kind = "a number" if key in _AMOUNTS else "a whole number"
            yield f"budget[{key!r}] must be {kind}, zero or more, not {limit!r}"


def _is_limit(key: str, limit: object) -> bool:
    if isinstance(limit, bool) or not isinstance(limit, int | float if key in _AMOUNTS else int):
        return False
    return limit >= 0 and (isinstance(limit, int) or math.isfinite(limit))
