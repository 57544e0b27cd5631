"""What a check found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from harness_worker.errors import HarnessError


class State(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of checking one thing.

    Args:
        name: What was checked: ``redis``, ``workers`` and so on.
        state: How bad it is.
        said: What was found, in one sentence.
        mend: How to fix it; empty if there is nothing to fix.
    """

    name: str
    state: State
    said: str
    mend: str = ""


def ok(name: str, said: str) -> Finding:
    """All is well."""
    return Finding(name=name, state=State.OK, said=said)


def warning(name: str, said: str, mend: str) -> Finding:
    """It works, but should be looked at."""
    return Finding(name=name, state=State.WARNING, said=said, mend=mend)


def wrong(name: str, said: str, mend: str) -> Finding:
    """Turns cannot run, or may be lost."""
    return Finding(name=name, state=State.WRONG, said=said, mend=mend)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The result of checking one service.

    Args:
        answered: Whether the service answered.
        findings: What was found; if the service did not answer, a finding about that.
    """

    answered: bool
    findings: tuple[Finding, ...]


NO_OTHERS: Final[Mapping[str, str]] = {}
UNASKED: Final = Probe(answered=False, findings=())


def probe(
    name: str, mend: str, check: Callable[[], Iterable[Finding]], instead: Mapping[str, str] = NO_OTHERS
) -> Probe:
    """Check something outside; that it does not answer is also a finding.

    Args:
        name: The name of that finding.
        mend: How to fix it then.
        check: Does the check.
        instead: How to fix it if the error contains certain words.
    """
    try:
        return Probe(answered=True, findings=tuple(check()))
    except HarnessError as error:
        return Probe(answered=False, findings=(wrong(name, str(error), _mend(str(error), mend, instead)),))


def _mend(said: str, usual: str, instead: Mapping[str, str]) -> str:
    return next((mend for words, mend in instead.items() if words.lower() in said.lower()), usual)
