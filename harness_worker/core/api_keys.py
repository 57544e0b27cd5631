"""API keys of the gateway: what is known of each, and which names tenants and keys may have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from harness_worker.errors import ConfigError

LONGEST: Final = 255


class KeyState(StrEnum):
    """Whether a key is accepted, and if not, why."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """What is known of a key. Times are in seconds since the epoch.

    Args:
        id: Its identifier; reveals nothing of the key.
        tenant: The tenant that its requests act for.
        name: What it is for, in its owner's words.
        created_at: When it was created.
        expires_at: Until when it is accepted; ``None``: until it is revoked.
        revoked_at: Since when it has been refused.
    """

    id: str
    tenant: str
    name: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None

    def state_at(self, now: float) -> KeyState:
        """Whether it is accepted at that time."""
        if self.revoked_at is not None:
            return KeyState.REVOKED
        is_over = self.expires_at is not None and self.expires_at <= now
        return KeyState.EXPIRED if is_over else KeyState.ACTIVE


def checked_name(name: str, option: str) -> str:
    """``name``, if a tenant or a key may have it: tenants' names become part of Redis keys and are shown in tables.

    Raises:
        ConfigError: It may not; the message names the option.
    """
    if name.isprintable() and name == name.strip() and 1 <= len(name) <= LONGEST:
        return name
    raise ConfigError(f"{option} {name[:LONGEST]!r}: give 1 to {LONGEST} visible characters, none at the ends blank")
