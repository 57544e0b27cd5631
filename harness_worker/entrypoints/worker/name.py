"""Names of workers, which are the same after a restart, and unique among those that run."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from collections.abc import Iterator
from typing import Final

MOST: Final = 100
"""How many workers of a role on a host have lasting names; any further worker is named after its process."""


class WorkerName:
    """``ROLE@HOST``, or ``ROLE-2@HOST`` and so on if that is taken on this host.

    A name is held by a socket in the kernel's abstract namespace (unix(7)), which can be bound once per host, by any
    user, and is free as soon as its process has ended, however it ends. Where there is none, as on macOS, a worker is
    named after its process: ``ROLE-PID@HOST``.

    Args:
        role: The worker's role.
        broker_url: The broker; names have to differ among the workers of one broker.
    """

    def __init__(self, role: str, broker_url: str) -> None:
        fleet = hashlib.sha256(broker_url.encode()).hexdigest()
        names = _candidates(role) if sys.platform == "linux" else iter(())
        claims = ((name, _bound(f"\0harness/{fleet}/{name}")) for name in names)
        name, self._claim = next((each for each in claims if each[1]), (f"{role}-{os.getpid()}", None))
        self.full = f"{name}@{socket.gethostname()}"

    def disown(self, **_: object) -> None:
        """Leave the name to the parent; to be called in a child, which must not hold it longer than the parent."""
        if self._claim is not None:
            self._claim.close()


def role_of(name: str) -> str:
    """The role of the worker with that full name: ``coordinator`` or ``tools``."""
    return name.partition("@")[0].partition("-")[0]


def _candidates(role: str) -> Iterator[str]:
    yield role
    yield from (f"{role}-{number}" for number in range(2, MOST + 1))


def _bound(address: str) -> socket.socket | None:
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(address)
    except OSError:
        claim.close()
        return None
    return claim
