"""A call's resource keys, by a rule of its tool's author or by default.

Calls that have no resource key in common may run together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from harness_worker.core.canonical import canonical
from harness_worker.core.registration.approval_policy import DeclaredApproval
from harness_worker.core.registration.author_code import Raised, attempt, shown
from harness_worker.core.registration.lock_policy import DeclaredLock
from harness_worker.core.registration.tools import Arguments, ResourceKeys

log = logging.getLogger(__name__)


def default_keys(tool_name: str, values: Arguments) -> tuple[str, ...]:
    """A read's default key: its tool's name with its arguments."""
    return (f"{tool_name}:{canonical(values)}",)


def unknown_keys(_values: Arguments) -> None:
    """No keys are known: the call runs alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredKeys:
    """The keys that a tool's author computes from the arguments.

    Args:
        tool_name: The tool's name, for the log.
        rule: The author's function of bound arguments.
    """

    tool_name: str
    rule: Callable[[Arguments], object]

    def __call__(self, values: Arguments) -> tuple[str, ...] | None:
        """The keys; ``None``, and a line in the log, if the rule raises or returns anything but strings."""
        keys = attempt(lambda: _checked(self.rule(values)))
        if isinstance(keys, Raised):
            told = shown(keys.error)
            log.warning("tool %s: resource_keys failed, the call runs alone: %s", self.tool_name, told)
            return None
        return keys


def beside_others(keys: ResourceKeys, *policies: object) -> ResourceKeys:
    """``keys``, except for calls that an author's rule among the policies (approval, lock) cannot judge."""
    rules = [policy for policy in policies if isinstance(policy, DeclaredApproval | DeclaredLock)]

    def of_judged(values: Arguments) -> tuple[str, ...] | None:
        return None if any(rule.fails(values) for rule in rules) else keys(values)

    return of_judged if rules else keys


def _checked(keys: object) -> tuple[str, ...]:
    if isinstance(keys, str | bytes | Mapping) or not isinstance(keys, Iterable):
        raise TypeError(f"expected a list of strings, not {shown(cast('object', keys))}")
    listed = tuple(cast("Iterable[object]", keys))
    if not all(isinstance(key, str) for key in listed):
        raise TypeError(f"expected a list of strings, not {shown(listed)}")
    return cast("tuple[str, ...]", listed)
