"""The lock of a call: a name that one call at a time holds, over all turns of a tenant."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Any

from harness_worker.core.registration.author_code import Raised, attempt, shown
from harness_worker.core.registration.tools import Arguments
from harness_worker.errors import ConfigError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredLock:
    """An author's rule. Calls whose lock the rule cannot tell share one lock of their tool.

    Args:
        tool_name: The tool's name, for that shared lock and for the log.
        rule: The author's function of bound arguments.
    """

    tool_name: str
    rule: Callable[[Arguments], object]

    def __call__(self, values: Arguments) -> str | None:
        """The lock's name, or ``None`` for a call that needs none; a rule that fails is logged."""
        told = self._told(values)
        return f"tool:{self.tool_name}" if isinstance(told, Raised) else told

    def fails(self, values: Arguments) -> bool:
        """Whether the rule cannot tell the call's lock."""
        return isinstance(self._told(values), Raised)

    def _told(self, values: Arguments) -> str | Raised | None:
        told = attempt(lambda: _checked(self.rule(values)))
        if isinstance(told, Raised):
            why = shown(told.error)
            log.warning("tool %s: lock failed, the call excludes others like it: %s", self.tool_name, why)
        return told


def _checked(name: object) -> str | None:
    if name is None or (isinstance(name, str) and name != ""):
        return name
    raise TypeError(f"expected a text that is not empty, or None, not {shown(name)}")


def _check_conversions(template: str) -> None:
    """Try what can be tried without arguments: the template's conversions, and the formats of what they give.

    Raises:
        ValueError: One of them cannot work.
    """
    for _, _, spec, conversion in Formatter().parse(template):
        text = Formatter().convert_field("", conversion)  # pyright: ignore[reportArgumentType] - a str, as parse gives it
        if conversion and spec and "{" not in spec:
            format(text, spec)


def template_rule(template: str, schema: Mapping[str, Any], label: str) -> Callable[[Any], str]:
    """A template such as ``order:{order_id}`` as a function of the arguments.

    Raises:
        ConfigError: It is not a template, or names an argument that the tool does not take.
    """
    try:
        fields = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
        _check_conversions(template)
    except ValueError as error:
        raise ConfigError(f"{label}: lock {template!r} is no template: {error}; write it like 'order:{{id}}'") from None
    known = schema.get("properties")
    for field in fields:
        argument = field.partition(".")[0].partition("[")[0]
        if not argument or (known is not None and argument not in known):
            there = ", ".join(known or ()) or "none"
            raise ConfigError(f"{label}: lock {template!r} names no argument {argument!r}; its arguments are: {there}")
    return template.format_map
