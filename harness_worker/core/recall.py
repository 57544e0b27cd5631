"""What a turn remembers of the calls of its earlier steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness_worker.wire import fields_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """A fold over the turn's calls in program order (``replay.py``), kept with the turn.

    Args:
        done: Idempotent calls that succeeded, no other write having been dispatched since: fingerprint to call id.
        doubtful: Calls that ended in doubt and were not repeated since: fingerprint to idempotency key.
        blocked: Tools that failed for good: name to call id.
        last_step: A digest of what the last step with calls asked for and got.
        repeats: How many steps running were equal to it, itself included.
        warned: The limits of the budget that were warned of.
        used: What the calls that succeeded were: the kinds of their tools, ``"tool"`` for one without a kind.
    """

    done: Mapping[str, str] = field(default_factory=dict[str, str])
    doubtful: Mapping[str, str] = field(default_factory=dict[str, str])
    blocked: Mapping[str, str] = field(default_factory=dict[str, str])
    last_step: str = ""
    repeats: int = 0
    warned: tuple[str, ...] = ()
    used: tuple[str, ...] = ()

    @classmethod
    def from_record(cls, record: Mapping[str, Any] | None) -> Recall:
        """From its fields as JSON; ``None`` if nothing was ever remembered."""
        known = fields_of(cls, record or {})
        known["warned"], known["used"] = tuple(known.get("warned", ())), tuple(known.get("used", ()))
        return cls(**known)
