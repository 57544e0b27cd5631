"""Keeping the agents of a coordinator in the catalogue that the gateway uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness_worker.core.registration.tools import AgentSpec
from harness_worker.ports import Catalogue, Clock

EVERY_S: Final = 15.0


class Publishing:
    """Keeps agents published, beside the reconciler.

    Args:
        catalogue: The catalogue.
        app: The import string of the agents' registry.
        agents: The agents that this process serves.
        clock: This process's monotonic time.
    """

    def __init__(self, catalogue: Catalogue, app: str, agents: Sequence[AgentSpec], clock: Clock) -> None:
        self._catalogue = catalogue
        self._app = app
        self._agents = agents
        self._clock = clock
        self._next_s = 0.0

    def __call__(self) -> None:
        """Renew the agents' entries, if it is time.

        Raises:
            TransientError: The database did not answer.
        """
        if self._clock.monotonic() >= self._next_s:
            self._catalogue.renew(self._app, self._agents)
            self._next_s = self._clock.monotonic() + EVERY_S
