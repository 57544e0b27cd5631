"""TCP ports on the loopback for servers that are restarted."""

from __future__ import annotations

import random
import socket

from harness_worker.errors import ConfigError

LOOPBACK = "127.0.0.1"

_CANDIDATES = range(20_000, 32_000)
"""Below the kernel's ephemeral range: a client that reconnects to a port from that range while its server is down may
be given the very port as its own end, connect to itself, and so keep the server from coming back."""

_TRIES = 200


def listening_socket(port: int = 0, *, option: str = "--port") -> socket.socket:
    """A listening loopback socket, to be handed to a server so that its port is never free in between.

    Args:
        port: Which one; 0 picks a free one.
        option: How the user chooses it, for the message.

    Raises:
        ConfigError: The port is in use, or none is free.
    """
    for candidate in [port] if port else _candidates():
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, candidate))
            listener.listen(2048)
        except OSError:
            listener.close()
        else:
            return listener
    what = f"port {port} is in use" if port else "no free port was found"
    raise ConfigError(f"{what} on {LOOPBACK}: stop what uses it, or choose another with {option} (0 picks a free one)")


def free_port() -> int:
    """A loopback port that nothing listens on now."""
    with listening_socket() as listener:
        return port_of(listener)


def port_of(listener: socket.socket) -> int:
    """The port a socket is bound to."""
    port: int = listener.getsockname()[1]
    return port


def _candidates() -> list[int]:
    return random.SystemRandom().sample(_CANDIDATES, _TRIES)
