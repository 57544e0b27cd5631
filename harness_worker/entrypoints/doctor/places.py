"""Where the parts of a stack are: as set, else as the stack that runs in the home says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness_worker.config import Settings
from harness_worker.entrypoints.stack.home import Home
from harness_worker.entrypoints.stack.info import running_stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Addresses; ``None`` where nobody said one.

    Args:
        settings: This process's settings.
        home: The home that was looked at.
        gateway_url: HTTP.
        redis_url: Gate, live events, broker.
        broker_url: Another broker.
        database_url: The journal.
        artifact_url: Oversized outputs.
    """

    settings: Settings
    home: Path
    gateway_url: str | None
    redis_url: str | None
    broker_url: str | None
    database_url: str | None
    artifact_url: str | None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to look at."""
        return not (self.gateway_url or self.redis_url or self.broker_url or self.database_url)


def find_places(settings: Settings) -> Places:
    """The places of the stack that this process's settings name."""
    stack = running_stack(settings.home)
    redis_url = settings.redis_url or (stack.redis_url if stack else None)
    its_broker = (
        stack.broker_url if stack and stack.redis_url == redis_url else None
    )  # of another Redis, it is another's
    return Places(
        settings=settings,
        home=settings.home,
        gateway_url=settings.gateway_url or (stack.gateway_url if stack else None),
        redis_url=redis_url,
        broker_url=settings.broker_url or its_broker,
        database_url=settings.database_url or (stack.database_url if stack else None),
        artifact_url=settings.artifact_url or (Home(stack.home).artifact_url if stack else None),
    )
