"""What a tool does to the world."""

from __future__ import annotations

from enum import StrEnum


class Effect(StrEnum):
    """The effect a tool declares. A tool that declares none is treated as the most careful case: sequential."""

    READ_ONLY = "READ_ONLY"
    LOCAL_WRITE = "LOCAL_WRITE"
    NETWORK = "NETWORK"
    DESTRUCTIVE = "DESTRUCTIVE"
