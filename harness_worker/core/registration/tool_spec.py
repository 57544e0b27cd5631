"""Makes a tool of a function and its options."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from harness_worker.core.by_name import Entries
from harness_worker.core.registration.approval_policy import DeclaredApproval
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.lock_policy import DeclaredLock, template_rule
from harness_worker.core.registration.raw_schema import RawFunction
from harness_worker.core.registration.resource_keys import DeclaredKeys, beside_others, default_keys, unknown_keys
from harness_worker.core.registration.signature import HintedFunction
from harness_worker.core.registration.tool_options import ToolOptions
from harness_worker.core.registration.tools import ApprovalPolicy, Arguments, ResourceKeys, ToolSpec
from harness_worker.core.text import clean_json, clean_text
from harness_worker.errors import ConfigError


def tool_spec(name: str, description: object, function: HintedFunction | RawFunction, options: ToolOptions) -> ToolSpec:
    """The tool of a function and its checked options.

    Raises:
        ConfigError: The description is not a string, or the lock is no template of its arguments.
    """
    if not isinstance(description, str):
        raise ConfigError(f"tool {name!r}: description must be a string, not {type(description).__name__}")
    approval, lock = _approval(name, function, options), _lock(name, function, options)
    return ToolSpec(
        name=name,
        description=clean_text(description),
        schema=clean_json(function.schema),
        effect=options.effect,
        idempotent=options.idempotent,
        retry_safe=options.may_run_again,
        timeout_s=options.timeout_s,
        queue=options.queue,
        approval=approval,
        approval_timeout_s=options.approval_timeout_s,
        lock=lock,
        bind=function.bind,
        keys=beside_others(_keys(name, function, options), approval, lock),
        invoke=function.invoke,
        kind=options.kind,
        checks_formats=isinstance(function, HintedFunction),
    )


def _keys(name: str, function: HintedFunction | RawFunction, options: ToolOptions) -> ResourceKeys:
    if options.resource_keys is not None:
        return DeclaredKeys(tool_name=name, rule=_of_bound(function, options.resource_keys))
    return functools.partial(default_keys, name) if options.effect is Effect.READ_ONLY else unknown_keys


def _approval(name: str, function: HintedFunction | RawFunction, options: ToolOptions) -> ApprovalPolicy:
    rule = options.approval
    if callable(rule):
        return DeclaredApproval(tool_name=name, rule=_of_bound(function, rule))
    return rule


def _lock(
    name: str, function: HintedFunction | RawFunction, options: ToolOptions
) -> Callable[[Arguments], str | None] | None:
    rule = options.lock
    if isinstance(rule, str):
        rule = template_rule(rule, function.schema, f"tool {name!r}")
    return None if rule is None else DeclaredLock(tool_name=name, rule=_of_bound(function, rule))


def _of_bound(function: HintedFunction | RawFunction, rule: Callable[[Any], object]) -> Callable[[Arguments], object]:
    """An author's function of an object of typed arguments, made a function of bound arguments."""
    return lambda values: rule(Entries(function.typed(values)))
