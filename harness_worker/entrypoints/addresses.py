"""Where the parts of a stack are: as set, else as the stack that runs in the home says."""

from __future__ import annotations

from functools import cached_property

from harness_worker.config import Settings
from harness_worker.entrypoints.stack.home import Home
from harness_worker.entrypoints.stack.info import StackInfo, running_stack


class Addresses:
    """URLs; ``None`` where neither the settings nor a running stack name one.

    The home is looked at once, and only when a URL is asked for that the settings do not name.

    Args:
        settings: What is set, and the home.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def gateway_url(self) -> str | None:
        """HTTP."""
        return self.settings.gateway_url or (self._stack.gateway_url if self._stack else None)

    @property
    def only_for(self) -> str | None:
        """The command that started the stack with this gateway for itself, and with which it ends."""
        return None if self.settings.gateway_url or self._stack is None else self._stack.only_for

    @property
    def app(self) -> str | None:
        """What the stack with this gateway serves, if it is the one in the home."""
        return None if self.settings.gateway_url or self._stack is None else self._stack.app

    @property
    def redis_url(self) -> str | None:
        """Gate, live events, broker."""
        return self.settings.redis_url or (self._stack.redis_url if self._stack else None)

    @property
    def broker_url(self) -> str | None:
        """Another broker; that of a stack whose Redis is another one is another's."""
        if self.settings.broker_url or self._stack is None or self._stack.redis_url != self.redis_url:
            return self.settings.broker_url
        return self._stack.broker_url

    @property
    def database_url(self) -> str | None:
        """The journal."""
        return self.settings.database_url or (self._stack.database_url if self._stack else None)

    @property
    def artifact_url(self) -> str | None:
        """Oversized outputs."""
        return self.settings.artifact_url or (Home(self._stack.home).artifact_url if self._stack else None)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to look at."""
        return not (self.gateway_url or self.redis_url or self.broker_url or self.database_url)

    @cached_property
    def _stack(self) -> StackInfo | None:
        return running_stack(self.settings.home)
