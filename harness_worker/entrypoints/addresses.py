"""Where the parts of a stack are: as the settings say, else as published by the stack that runs in the home."""

from __future__ import annotations

import shlex
from functools import cached_property

from harness_worker.config import Settings
from harness_worker.entrypoints.stack.home import Home
from harness_worker.entrypoints.stack.info import StackInfo, running_stack
from harness_worker.urls import masked


class Addresses:
    """URLs; ``None`` where neither the settings nor a running stack name one.

    The home is read at most once, and only when a URL is requested that the settings do not name.

    Args:
        settings: The settings, including the home.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def options(self) -> str:
        """The options by which another command finds the same gateway, each after a space; none if it needs none."""
        url = self.settings.gateway_url
        return f" --url {shlex.quote(masked(url))}" if url else self.home_option

    @property
    def home_option(self) -> str:
        """The option by which another command finds the same home, after a space; none if it is the usual one."""
        home = self.settings.home
        is_usual = home == type(self.settings).model_fields["home"].default
        return "" if is_usual else f" --home {shlex.quote(str(home))}"

    @property
    def gateway_url(self) -> str | None:
        """The gateway's HTTP API."""
        return self.settings.gateway_url or (self._stack.gateway_url if self._stack else None)

    @property
    def only_for(self) -> str | None:
        """The command that started the gateway's stack for itself, and that will end it."""
        return None if self.settings.gateway_url or self._stack is None else self._stack.only_for

    @property
    def app(self) -> str | None:
        """The app that the gateway's stack serves, if it is the stack in the home."""
        return None if self.settings.gateway_url or self._stack is None else self._stack.app

    @property
    def redis_url(self) -> str | None:
        """The Redis of the gate, live events and messages."""
        return self.settings.redis_url or (self._stack.redis_url if self._stack else None)

    @property
    def broker_url(self) -> str | None:
        """A broker other than Redis; that of the stack in the home only counts if its Redis is the one meant."""
        if self.settings.broker_url or self._stack is None or self._stack.redis_url != self.redis_url:
            return self.settings.broker_url
        return self._stack.broker_url

    @property
    def database_url(self) -> str | None:
        """The database of the journal."""
        return self.settings.database_url or (self._stack.database_url if self._stack else None)

    @property
    def artifact_url(self) -> str | None:
        """The artifact store."""
        return self.settings.artifact_url or (Home(self._stack.home).artifact_url if self._stack else None)

    @property
    def is_empty(self) -> bool:
        """Whether no part of a stack is named."""
        return not (self.gateway_url or self.redis_url or self.broker_url or self.database_url)

    @cached_property
    def _stack(self) -> StackInfo | None:
        return running_stack(self.settings.home)
