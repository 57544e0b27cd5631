"""Which of a message's calls may run together.

Waves never reorder. Consecutive reads share a wave while their resource keys are disjoint; every other call, a call
of unknown effect included, is a wave of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """What the scheduler needs to know of a call.

    Args:
        keys: The resources a read touches; ``None`` for a call that must run alone.
    """

    keys: frozenset[str] | None


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
    for want in wants:
        joins = parallel and held is not None and want.keys is not None and not (held & want.keys)
        if joins and held is not None and want.keys is not None:
            waves.append(waves[-1])
            held |= want.keys
        else:
            waves.append(waves[-1] + 1 if waves else 0)
            held = want.keys
    return tuple(waves)
