"""Whether a call needs a person's approval, by a rule of its tool's author."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from harness_worker.core.registration.author_code import Raised, attempt, shown
from harness_worker.core.registration.tools import Arguments

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredApproval:
    """An author's rule. A call that the rule cannot judge needs approval.

    Args:
        tool_name: The tool's name, for the log.
        rule: The author's function of bound arguments.
    """

    tool_name: str
    rule: Callable[[Arguments], object]

    def __call__(self, values: Arguments) -> bool:
        """Whether a person has to agree; true if the rule fails."""
        return self._verdict(values) is not False

    def fails(self, values: Arguments) -> bool:
        """Whether the rule cannot judge the call."""
        return self._verdict(values) is None

    def _verdict(self, values: Arguments) -> bool | None:
        """The rule's answer; ``None``, and a line in the log, if it raises or returns anything but a bool."""
        match attempt(self.rule, values):
            case bool(verdict):
                return verdict
            case Raised(error=error):
                log.warning("tool %s: approval failed, a person is asked: %s", self.tool_name, shown(error))
            case verdict:
                told = shown(verdict)
                log.warning("tool %s: approval returned %s, not a bool; a person is asked", self.tool_name, told)
        return None
