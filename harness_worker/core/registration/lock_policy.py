"""The lock of a call: a name that one call at a time holds, over all turns of a tenant."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from string import Formatter
from typing import Any, Final, Literal

from harness_worker.core.registration.author_code import Raised, attempt, shown
from harness_worker.core.registration.tools import Arguments
from harness_worker.errors import ConfigError

log = logging.getLogger(__name__)


class _Untold(Enum):
    UNTOLD = "untold"


_UNTOLD: Final = _Untold.UNTOLD
"""Stands for the answer of a rule that raised or returned no name."""


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
        return f"tool:{self.tool_name}" if told is _UNTOLD else told

    def fails(self, values: Arguments) -> bool:
        """Whether the rule cannot tell the call's lock."""
        return self._told(values) is _UNTOLD

    def _told(self, values: Arguments) -> str | Literal[_Untold.UNTOLD] | None:
        match attempt(self.rule, values):
            case None | str() as name if name != "":
                return name
            case Raised(error=error):
                told = shown(error)
                log.warning("tool %s: lock failed, the call excludes others like it: %s", self.tool_name, told)
            case name:
                log.warning(
                    "tool %s: lock returned %s, no text; the call excludes others like it", self.tool_name, shown(name)
                )
        return _UNTOLD


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
