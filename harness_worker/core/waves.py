"""Which of a message's calls may run together.

Waves never reorder. Consecutive reads share a wave while their resource keys are disjoint, and so do consecutive calls
of agents; every other call, a call of unknown effect included, is a wave of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """What the scheduler needs to know about a call.

    Args:
        keys: The resources it touches; ``None`` for a call that must run alone.
        is_delegated: Whether it is a call of an agent, which shares no wave with reads.
    """

    keys: frozenset[str] | None
    is_delegated: bool = False


def plan_waves(wants: Sequence[Want], *, parallel: bool) -> tuple[int, ...]:
    """The wave of each call, in program order.

    Args:
        wants: The calls of one message, by position.
        parallel: ``False`` makes every call a wave of its own.

    Returns:
        One wave number per call, starting at 0 and never decreasing.
    """
    waves: list[int] = []
    number, newest = -1, Want(keys=None)
    for want in wants:
        joined = _joined(newest, want) if parallel else None
        if joined is None:
            number += 1
        newest = joined or want
        waves.append(number)
    return tuple(waves)


def _joined(wave: Want, want: Want) -> Want | None:
    """The wave with one more call in it; ``None`` if that call may not run beside the others."""
    if wave.keys is None or want.keys is None or wave.keys & want.keys or wave.is_delegated != want.is_delegated:
        return None
    return replace(wave, keys=wave.keys | want.keys)
