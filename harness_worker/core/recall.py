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
        done: Idempotent calls that succeeded with no other write dispatched since: fingerprint to call id.
        doubtful: Calls that ended in doubt and have not been repeated: fingerprint to idempotency key.
        blocked: Tools that failed for good: name to call id.
        last_step: A digest of what the last step with calls asked for and got.
        repeats: How many steps in a row equal that step, itself included.
        warned: The limits that a warning was given for.
        used: The kinds of the tools whose calls succeeded; ``"tool"`` for a tool without a kind.
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
        """From its fields as JSON, or from ``None`` if nothing was ever remembered."""
        known = fields_of(cls, record or {})
        known["warned"], known["used"] = tuple(known.get("warned", ())), tuple(known.get("used", ()))
        return cls(**known)
