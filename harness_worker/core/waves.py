"""Which of a message's calls may run together.

Waves never reorder. Consecutive reads share a wave while their resource keys are disjoint, and so do consecutive calls
of agents; every other call, a call of unknown effect included, is a wave of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """What the scheduler needs to know of a call.

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
        One wave number a call, from 0, never falling.
    """
    waves: list[int] = []
    held: frozenset[str] | None = None
    is_delegated = False
    for want in wants:
        joins = parallel and held is not None and want.keys is not None and not (held & want.keys)
        joins = joins and want.is_delegated == is_delegated
        if joins and held is not None and want.keys is not None:
            waves.append(waves[-1])
            held |= want.keys
        else:
            waves.append(waves[-1] + 1 if waves else 0)
            held, is_delegated = want.keys, want.is_delegated
    return tuple(waves)
