"""How often a coordinator sees to its agents in the catalogue."""

from __future__ import annotations

from typing import cast

from harness_worker.ports import Catalogue
from harness_worker.turn.publishing import EVERY_S, Publishing
from tests.unit.engine_kit import SetClock


class Seen:
    """A catalogue that counts who keeps it."""

    def __init__(self) -> None:
        self.renewed: list[str] = []

    def renew(self, app: str, agents: object) -> None:  # noqa: ARG002 - the port's signature
        """See ``ports.Catalogue.renew``."""
        self.renewed.append(app)


def test_agents_are_kept_published_now_and_then() -> None:
    """At the first round, and then not at each, for each asks the database."""
    store, clock = Seen(), SetClock()
    publishing = Publishing(cast("Catalogue", store), "one", (), clock)
    for _ in range(3):
        publishing()
    assert store.renewed == ["one"]
    clock.now_s += EVERY_S
    publishing()
    assert store.renewed == ["one", "one"]
