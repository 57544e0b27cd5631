"""TCP ports on the loopback interface, for servers that are restarted."""

from __future__ import annotations

import errno
import random
import socket

from harness_worker.errors import ConfigError

LOOPBACK = "127.0.0.1"

_CANDIDATES = range(20_000, 32_000)
"""Ports below the kernel's ephemeral range. A client that reconnects to a port in that range while the server is down
may be given the same port as its own end, connect to itself, and so keep the server from coming back."""

_TRIES = 200


def listening_socket(port: int = 0, *, option: str = "--port") -> socket.socket:
    """A listening loopback socket, to be handed to a server so that its port is never free in between.

    Args:
        port: The port; 0 picks a free one.
        option: The option that sets it, for error messages.

    Raises:
        ConfigError: The port is in use or not allowed, or none is free.
    """
    why = f"no free port was found on {LOOPBACK}:"
    for candidate in [port] if port else _candidates():
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, candidate))
            listener.listen(2048)
        except OSError as refused:
            listener.close()
            why = _why_not(port, refused) if port else why
        else:
            return listener
    raise ConfigError(f"{why} choose another with {option} (0 picks a free one)")


def _why_not(port: int, refused: OSError) -> str:
    if refused.errno == errno.EADDRINUSE:
        return f"port {port} is in use on {LOOPBACK}: stop what uses it, or"
    return f"port {port} of {LOOPBACK} cannot be used ({refused.strerror}):"


def free_port() -> int:
    """A loopback port that nothing is listening on now."""
    with listening_socket() as listener:
        return port_of(listener)


def port_of(listener: socket.socket) -> int:
    """The port a socket is bound to."""
    port: int = listener.getsockname()[1]
    return port


def _candidates() -> list[int]:
    return random.SystemRandom().sample(_CANDIDATES, _TRIES)
