"""What may go wrong, and how often, in one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

FAULTS_END_S = 60.0
"""From here on nothing goes wrong any more, so that every turn has a chance to end."""


class Fault(StrEnum):
    """The kinds."""

    KILL_PROCESS = "kill_process"
    KILL_HOST = "kill_host"
    STOP_PROCESS = "stop_process"
    STOP_HOST = "stop_host"
    HANG = "hang"
    LOSE_MESSAGE = "lose_message"
    DOUBLE_MESSAGE = "double_message"
    DELAY_MESSAGE = "delay_message"
    FLUSH = "flush"
    STORE_ERROR = "store_error"
    GATE_ERROR = "gate_error"
    LOSE_CHORD = "lose_chord"
    SKEW = "skew"
    MODEL_ERROR = "model_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How strongly each kind strikes; a kind that is left out never does."""

    strength: Mapping[Fault, float] = field(default_factory=dict[Fault, float])

    @property
    def are_harmless(self) -> bool:
        """Whether nothing is lost, late or dead: doubled messages alone must cost nothing."""
        return not self.strength.keys() - {Fault.DOUBLE_MESSAGE}

    def has(self, kind: Fault) -> bool:
        """Whether this kind may strike at all."""
        return kind in self.strength

    def strikes(self, kind: Fault, chance: float, random: Random, now: float) -> bool:
        """Whether it strikes here and now, ``chance`` being the odds at strength 1."""
        strength = self.strength.get(kind)
        return strength is not None and now < FAULTS_END_S and random.random() < chance * strength


NONE = Faults()


def some(seed: int) -> Faults:
    """A random choice of kinds and strengths: runs with few kinds of fault go deeper than runs with all of them."""
    random = Random(seed)  # noqa: S311 - a schedule, not a secret
    return Faults(strength={kind: random.choice([0.3, 1.0, 2.0, 5.0]) for kind in Fault if random.random() < 0.4})


def only(*kinds: Fault, strength: float = 1.0) -> Faults:
    """Just these."""
    return Faults(strength=dict.fromkeys(kinds, strength))
