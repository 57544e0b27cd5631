"""What a tool does to the world."""

from __future__ import annotations

from enum import StrEnum


class Effect(StrEnum):
    """The effect that a tool declares. Calls of a tool that declares none are handled most carefully: sequentially."""

    READ_ONLY = "READ_ONLY"
    LOCAL_WRITE = "LOCAL_WRITE"
    NETWORK = "NETWORK"
    DESTRUCTIVE = "DESTRUCTIVE"
